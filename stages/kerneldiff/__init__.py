"""The kerneldiff stage, and comparison of tensors as a library. Importing this package does not import torch."""
