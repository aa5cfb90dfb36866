"""Messages as they stand in the source: what none of them may have."""

import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "batchzs"
SOURCES = sorted(path for path in PACKAGE.rglob("*") if path.suffix in {".py", ".html"})


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_plural_in_parentheses(path: Path) -> None:
    """A number of things is written as people write it, through `counted`: 1 shard, 2 shards."""
    assert re.findall(r"\w+\(s\)", path.read_text(encoding="utf-8")) == []
