"""Networks whose weights are constructed instead of learned, with proven bounds on their errors and norms."""
