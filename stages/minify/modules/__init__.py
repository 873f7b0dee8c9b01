"""The smallest module that shows what no graph shows as a program of its own."""
