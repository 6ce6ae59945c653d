"""Random modules whose results an H200 has given: generator, recorder and comparison.

``generate`` makes the modules from a seed, ``record`` runs them on a GPU, ``recording`` keeps what came out and says
whether other results agree with it.
"""
