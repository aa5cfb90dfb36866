"""One page about an output: aggregated with Polars, drawn as SVG, put together as HTML without scripts.

    shards ── aggregate ─┐
    records ── work ─────┼─ contents ── charts ── page
    input ── texts ──────┘

Every module here needs an output and neither its input nor its model; where the input is gone, texts are left out.
"""
