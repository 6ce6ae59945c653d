"""Finds the fastest configuration of a problem: draws, ranks and measures configurations until the budget is spent."""
