"""Measuring, remembering, predicting, deciding: sampler, search, model, tuner, worker, database, tuning files."""
