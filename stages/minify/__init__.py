"""The smallest program that shows a failure."""
