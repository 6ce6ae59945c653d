"""The parts that plans are composed of: operands, main loop, epilogue, scheduler, and their kernel parameters."""
