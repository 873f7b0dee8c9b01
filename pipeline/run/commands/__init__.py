"""What a command line asks for: composed and checked by Hydra, then one run, or the jobs of a sweep."""
