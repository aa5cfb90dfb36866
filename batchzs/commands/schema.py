"""The command `schema`: the job file's JSON Schema, for editors."""

from __future__ import annotations

import json

import click

from batchzs.printing import show


@click.command(
    epilog="""\b
Example:
  batchzs schema > job.schema.json
  sed -i '1i # yaml-language-server: $schema=job.schema.json' news.yaml
"""
)
def schema() -> None:
    """Print the JSON Schema of job files, by which editors complete keys and mark mistakes."""
    from batchzs.job_schema import job_json_schema

    show(json.dumps(job_json_schema(), ensure_ascii=False, indent=2))
