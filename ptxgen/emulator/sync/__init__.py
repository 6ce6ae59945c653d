"""Synchronisation: barriers, mbarriers, clusters, asynchronous work, and the checks for races."""
