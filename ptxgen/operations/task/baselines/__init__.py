"""Baselines of tasks: the programs that users write without ptxgen, in PyTorch, Triton, Gluon and CUDA C++, generated
from the program of a task."""
