"""Which operation of several is at fault."""
