"""The papers' theorems as functions."""
