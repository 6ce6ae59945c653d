"""Loads, stores, moves and conversions."""
