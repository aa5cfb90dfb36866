"""Label millions of texts overnight with a zero-shot StructBERT classifier.

The package's files, read from `cli` downwards, are the data flow of a run; docs/structure.md walks through them.
"""

__version__ = "0.1.0"
