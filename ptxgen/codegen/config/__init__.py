"""What a family declares: axes, configurations and their text forms, the row of a rule."""
