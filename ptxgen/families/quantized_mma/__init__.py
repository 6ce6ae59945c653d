"""Products with quantized weights, which are loaded once and become operands of mma.sync in registers."""
