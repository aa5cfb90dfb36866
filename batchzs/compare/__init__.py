"""Two outputs over the same rows, side by side."""
