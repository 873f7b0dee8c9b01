"""The one-pass comparison on a CUDA device."""
