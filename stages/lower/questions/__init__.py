"""Questions about what was lowered: kernels, decisions, printed values."""
