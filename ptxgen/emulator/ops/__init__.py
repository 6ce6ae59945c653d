"""The instructions, in folders by the chapters of the PTX ISA, and the operands that steps of instructions are built
from."""
