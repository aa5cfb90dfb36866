"""An output held against what it should be."""
