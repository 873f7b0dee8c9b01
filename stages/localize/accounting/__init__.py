"""What the errors of values cost the answer."""
