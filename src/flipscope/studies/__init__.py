"""One file a study: what a paper measured, measured again, and judged."""
