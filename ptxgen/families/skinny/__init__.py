"""The family skinny: one side of C is short. The operand of the long side is loaded once, directly into registers."""
