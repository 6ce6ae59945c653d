"""What users write without ptxgen: PyTorch, Triton, Gluon and CUDA C++, generated from the program of a task."""
