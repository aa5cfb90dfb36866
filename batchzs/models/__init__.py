"""Find a checkpoint, read what it says of itself, load it, and run it."""
