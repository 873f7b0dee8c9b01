"""``inductor-debug doctor``: whether this machine can do what runs need, tried, and how to mend what it can't."""
