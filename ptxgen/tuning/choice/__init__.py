"""The sources of configurations and their order: winners, seeds, the nearest device, the model, cached choices."""
