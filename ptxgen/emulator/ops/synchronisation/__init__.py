"""Barriers, fences, atomic operations, and the exchange of values in a warp or a cluster."""
