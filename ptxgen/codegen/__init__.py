"""Code generation common to all kernel families: configurations, plans, registers, rendering, sources."""
