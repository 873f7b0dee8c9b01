"""A profile's numerics, executed on the host: rounding, accumulation, casts, padding and host fallbacks."""
