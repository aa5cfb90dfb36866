"""Labels held against true ones."""
