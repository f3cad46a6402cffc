"""Paper 000: the geometry of parameter space, and why it favours functions of low sensitivity."""
