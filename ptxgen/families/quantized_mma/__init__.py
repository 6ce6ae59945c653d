"""The family quantized_mma: quantized weights are loaded once and converted in registers to operands of mma.sync."""
