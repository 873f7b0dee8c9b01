"""What ran: a graph, what it was given, and the values of it that were seen."""
