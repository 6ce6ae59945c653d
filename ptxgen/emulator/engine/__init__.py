"""The machine: modules, launches, the scheduler of warps, the run-time compiler, and the report of a launch."""
