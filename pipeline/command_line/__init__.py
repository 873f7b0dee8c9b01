"""The commands of ``inductor-debug``, by what they are about; each registers itself with the parser."""
