"""The profile stage: where a compiled step's time goes, by kernel, operation, module and source line."""
