"""Stored runs in formats that other tools read: ``inductor-debug report --format`` and ``inductor-debug export``."""
