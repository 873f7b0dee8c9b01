"""Runs: composed, started in worker processes, watched, and left as a complete directory."""
