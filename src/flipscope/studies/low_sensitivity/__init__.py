"""Studies of paper 004, on transformers and functions of low sensitivity (Vasudeva et al. 2025)."""
