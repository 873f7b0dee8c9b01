"""Graph records and what can be told of them: liveness, sources, FLOPs, names, symbolic sizes."""
