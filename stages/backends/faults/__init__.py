"""Faults that can be planted in a backend, and how one gets into a graph."""
