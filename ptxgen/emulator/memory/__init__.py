"""Memory as the instructions see it: address spaces, allocations, tensor maps and swizzles."""
