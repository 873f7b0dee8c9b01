"""Accelerator profiles: as a user writes them, checked, and as the rules read them."""
