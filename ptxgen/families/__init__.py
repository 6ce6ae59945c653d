"""The kernel families, each with its geometry, rules, candidates, performance model and plan, and what ranks them."""
