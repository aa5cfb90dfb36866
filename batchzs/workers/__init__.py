"""A run on all devices: one process each, and what it and the run say to each other."""
