"""The instructions, in folders by the chapters of the PTX ISA, and the operands from which their steps are built."""
