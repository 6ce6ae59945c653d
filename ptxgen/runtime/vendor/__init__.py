"""The vendor's libraries, timed in the same run as our kernels; operations name them as their baselines."""
