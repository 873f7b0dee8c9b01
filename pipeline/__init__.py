"""Knows Hydra, directories, processes and the command line; knows nothing of FX nodes or tensors."""
