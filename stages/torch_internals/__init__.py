"""Every private torch API the project relies on, and nothing else: one room to mend when torch moves."""
