"""Tuning: measures configurations, stores measurements, predicts times, and selects the configuration of a problem."""
