"""The engines, one folder a stage. Knows torch, knows nothing of Hydra or of a run directory's parents.

Importing this package, a stage's ``config`` module, ``stages.graphs.records`` or ``stages.contract`` never imports
torch.
"""
