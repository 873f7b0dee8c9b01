"""The benchmark stage."""
