"""A strict reader of Prometheus' text format: what it does not take, node_exporter might not."""

from __future__ import annotations

import re

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)')
_SAMPLE = re.compile(rf"({_NAME})\{{(.*)\}} (-?[0-9]+(?:\.[0-9]+)?)")
_UNESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}

Sample = tuple[str, tuple[tuple[str, str], ...]]


def parse_exposition(content: bytes) -> dict[Sample, float]:
    """Read a file: every metric with HELP, then TYPE gauge, then its samples, each once; no time stamps."""
    text = content.decode("utf-8")
    assert text.endswith("\n")
    samples: dict[Sample, float] = {}
    seen: list[str] = []
    typed = False
    for line in text[:-1].split("\n"):
        if found := re.fullmatch(rf"# HELP ({_NAME}) ([^\\]+)", line):
            assert found[1] not in seen, line
            seen.append(found[1])
            typed = False
        elif found := re.fullmatch(rf"# TYPE ({_NAME}) gauge", line):
            assert not typed, line
            assert found[1] == seen[-1], line
            typed = True
        else:
            found = _SAMPLE.fullmatch(line)
            assert found is not None, line
            assert typed, line
            assert found[1] == seen[-1], line
            key = (found[1], _labels(found[2]))
            assert key not in samples, line
            samples[key] = float(found[3])
    return samples


def _labels(text: str) -> tuple[tuple[str, str], ...]:
    labels = []
    position = 0
    while position < len(text):
        found = _LABEL.match(text, position)
        assert found is not None, text[position:]
        labels.append((found[1], re.sub(r"\\.", lambda escape: _UNESCAPED[escape.group()], found[2])))
        position = found.end()
    assert len({name for name, _ in labels}) == len(labels), text
    return tuple(labels)
