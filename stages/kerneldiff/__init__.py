"""The kerneldiff stage."""
