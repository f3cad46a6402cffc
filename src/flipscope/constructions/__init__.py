"""Weights written down: networks that compute a given function by construction."""
