"""Benchmarks: each compares in one run, on the same texts, and says on what machine."""
