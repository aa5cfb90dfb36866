"""Input files: found (`discovery`), frozen by a first pass (`freeze`, `frozen`), read by a second one (`read`).

Nothing is imported here, so that the types in `rows` and `spec` cost nothing.
"""
