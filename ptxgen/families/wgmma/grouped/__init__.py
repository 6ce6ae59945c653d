"""Loads and tiles of jagged groups, whose items are rows of one array or matrices."""
