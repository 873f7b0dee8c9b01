"""Every backend behind one door, the adapter: built in, installed, or a user's own."""
