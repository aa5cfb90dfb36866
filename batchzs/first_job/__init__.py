"""A first job file from a look at the input."""
