"""A simulated NPU called acme, as a vendor's package would add it. Imports nothing: torch comes with the parts."""
