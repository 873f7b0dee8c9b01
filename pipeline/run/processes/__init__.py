"""What runs in processes of its own: the worker in which stages run, its guard, the server that it is forked from."""
