"""The rules of a profile over graph records, and what they find."""
