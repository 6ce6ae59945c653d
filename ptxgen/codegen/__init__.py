"""What all kernel families share from numbers to PTX: configurations, plans, registers, rendering, sources."""
