"""Which flips provably leave the sign of a two-layer transformer alone: intervals of the logits of all flips."""
