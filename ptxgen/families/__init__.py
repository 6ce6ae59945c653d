"""The kernel families: geometry, rules and plan of each."""
