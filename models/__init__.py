"""Builds cases: a module, its example inputs, its mode. Knows torch, transformers and torchvision; imports lazily."""
