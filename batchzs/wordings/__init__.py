"""Templates and labels compared on a few texts."""
