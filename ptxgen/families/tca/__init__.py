"""TCA-SpMM: 64 nonzeros of a row are an operand of one matrix instruction, whose diagonal sums are the results."""
