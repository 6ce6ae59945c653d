"""Integer and floating-point arithmetic, comparisons, logic, shifts and video instructions."""
