"""Random modules with outputs recorded on GPUs of sm_90: generator, recorder and comparison.

``generate`` makes the modules from a seed, ``record`` runs them on a GPU, ``recording`` stores the outputs and compares
other outputs with them.
"""
