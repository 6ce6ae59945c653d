"""Tuning: sampler, search, model, tuner, measurements, the tuning database, tuning files, selection."""
