"""Studies, trials and claims; the store that keeps results; the runners that make them."""
