"""What kernel families share: geometry, rules, candidates and their space, features, and the performance model."""
