"""Studies of paper 001, on why sensitive functions are hard (Hahn and Rofin 2024)."""
