"""The family row_split: a group of lanes adds the products of one row of a sparse matrix, for some columns of B."""
