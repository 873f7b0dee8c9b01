"""The lower stage."""
