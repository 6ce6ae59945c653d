"""The family tca, TCA-SpMM: 64 nonzeros of a row are an operand of one matrix instruction, and sums of diagonals of the
product are the results."""
