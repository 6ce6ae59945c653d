"""Measures many problems, on several devices or machines, as training data or to validate the model."""
