"""Networks whose weights are written down instead of learned, with what can be proven of them."""
