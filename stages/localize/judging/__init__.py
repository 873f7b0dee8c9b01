"""A value against float64 of what its operations received."""
