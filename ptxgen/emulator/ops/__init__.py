"""The instructions, one module for each group, and the builder that turns their operands into steps."""
