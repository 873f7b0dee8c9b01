"""A run's directory: who owns it, what is written there, and how it is read back."""
