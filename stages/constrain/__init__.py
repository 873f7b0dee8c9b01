"""The constrain stage."""
