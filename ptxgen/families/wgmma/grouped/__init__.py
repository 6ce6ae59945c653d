"""The loads and tiles of jagged groups, whose items are ranges of rows of one array, or matrices."""
