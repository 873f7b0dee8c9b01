"""The sides of a comparison: reference, gold and test, each a step of a case, run here or read from a stored run."""
