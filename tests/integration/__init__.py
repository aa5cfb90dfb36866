"""A package, so that a test file here may be named like one of the tests of single modules."""
