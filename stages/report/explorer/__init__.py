"""The report's graphs to work with: what the page draws, colours and links."""
