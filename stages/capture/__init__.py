"""The capture stage."""
