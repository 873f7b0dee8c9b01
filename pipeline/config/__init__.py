"""The configuration: its schema, what the command line may say, and the errors that say so."""
