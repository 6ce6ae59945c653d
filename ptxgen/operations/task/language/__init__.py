"""The text of tasks: the grammar, the parser, the canonical text of programs."""
