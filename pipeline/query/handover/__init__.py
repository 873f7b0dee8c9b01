"""A stored reproduction handed over: who owns the failure, a test of it, a bug report."""
