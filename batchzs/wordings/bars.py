"""Scored texts as bars for a terminal, best label first, one wording beside the other where there is room.

Pure. What comes from files, labels and templates is escaped here. Block characters are one column wide on most
terminals; `is_ascii` does without them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from batchzs.display_width import display_width, padded
from batchzs.escape import escaped
from batchzs.inputs.rows import OK
from batchzs.scoring import rank_labels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from batchzs.inputs.rows import ShardRows
    from batchzs.wordings.scored import Scored, Wording

_EIGHTHS = " ▏▎▍▌▋▊▉"
#: A cell is a bar, a space, a score such as 0.123, and a mark.
_BESIDE_BAR = 7
_MIN_BAR, _MAX_BAR = 9, 40
_GAP = 2
_TEXT_LINES = 2


@dataclass(frozen=True, slots=True)
class Style:
    """How a terminal is written to."""

    width: int  # columns
    is_ascii: bool  # no character of a bar beyond ASCII
    num_labels: int  # rows of a text, where there are more labels
    emphasise: Callable[[str], str]  # what stands out; the identity where nothing may


def format_wordings(wordings: Sequence[Wording]) -> Iterator[str]:
    """List the wordings with their numbers."""
    for number, wording in enumerate(wordings, start=1):
        head = "template" if len(wordings) == 1 else f"wording {number}"
        yield f"{head:<12}{escaped(wording.template)}"


def format_texts(scored: Sequence[Scored], rows: ShardRows, style: Style) -> Iterator[str]:
    """Write each text with its labels, best first by the first wording.

    Args:
        scored: the texts in every wording.
        rows: the texts, and where they come from; a `source_file` of "" is nowhere.
        style: how.
    """
    for row in range(rows.num_rows):
        yield ""
        yield from _heading(scored[0], rows, row, style)
        if scored[0].frame["status"][row] == OK:
            yield from _bars(scored, row, style)
    yield from _legend(scored)


def _legend(scored: Sequence[Scored]) -> Iterator[str]:
    """What the marks mean, where there are any, and what it means that there is none."""
    is_scored = [one.frame["status"].eq(OK).to_numpy() for one in scored]
    is_marked = [one.chosen.any(axis=1) for one in scored]
    lines = []
    if any(marked.any() for marked in is_marked):
        lines.append("* a label that a run gives")
    if any((done & ~marked).any() for done, marked in zip(is_scored, is_marked, strict=True)):
        lines.append(f"no mark: every label is below the threshold, {scored[0].wording.job.resolved_threshold}")
    if lines:
        yield ""
        yield from lines


def _heading(scored: Scored, rows: ShardRows, row: int, style: Style) -> Iterator[str]:
    frame = scored.frame
    facts = [f"row {rows.source_rows[row]} of {escaped(rows.source_files[row])}"] if rows.source_files[row] else []
    if rows.statuses[row] != OK:
        facts.append(f"{rows.statuses[row]}, not scored: {escaped(rows.reasons[row] or '')}")
    elif frame["status"][row] != OK:
        facts.append(f"{frame['status'][row]}, not scored: {frame['reason'][row]}")
    else:
        facts.append(f"{frame['num_tokens'][row]:,} tokens{', cut' if frame['truncated'][row] else ''}")
    yield from folded(f"{row + 1:<3} {'; '.join(facts)}", style.width, 3, style)
    for line in folded(escaped(rows.texts[row][: style.width * _TEXT_LINES]), style.width - 4, _TEXT_LINES, style):
        yield f"    {line}"


def _bars(scored: Sequence[Scored], row: int, style: Style) -> Iterator[str]:
    names = [escaped(name) for name in scored[0].wording.names]
    ranked = rank_labels(scored[0].scores[row : row + 1])[0]
    shown = {*ranked[: style.num_labels].tolist()}
    for one in scored:  # whatever wins anywhere is there to be compared
        shown |= {int(one.scores[row].argmax()), *np.flatnonzero(one.chosen[row]).tolist()[: style.num_labels]}
    places = [place for place in ranked.tolist() if place in shown]
    name_width = min(max(display_width(names[place]) for place in places), max(style.width // 4, 8))
    room = style.width - 4 - name_width - _GAP
    num_beside = max(1, min(len(scored), (room + _GAP) // (_MIN_BAR + _BESIDE_BAR + _GAP)))
    cell = (room + _GAP) // num_beside - _GAP
    bar_width = max(1, min(cell - _BESIDE_BAR, _MAX_BAR))
    for first in range(0, len(scored), num_beside):
        part = scored[first : first + num_beside]
        if len(scored) > 1:
            heads = [
                padded(
                    _cut(f"{number} {escaped(one.wording.template)}", bar_width + _BESIDE_BAR, style),
                    bar_width + _BESIDE_BAR,
                )
                for number, one in enumerate(part, start=first + 1)
            ]
            yield (" " * (4 + name_width + _GAP) + (" " * _GAP).join(heads)).rstrip()
        for place in places:
            name = padded(_cut(names[place], name_width, style), name_width)
            cells = [_cell(one, row, place, bar_width, style) for one in part]
            if any(one.chosen[row, place] for one in part):
                name = style.emphasise(name)
            yield ("    " + name + " " * _GAP + (" " * _GAP).join(cells)).rstrip()
    if len(places) < len(names):
        rest = max(float(scored[0].scores[row, place]) for place in ranked.tolist() if place not in shown)
        yield f"    and {len(names) - len(places)} more labels, at most {rest:.3f}"


def _cell(scored: Scored, row: int, place: int, bar_width: int, style: Style) -> str:
    score = float(scored.scores[row, place])
    if not np.isfinite(score):
        return padded("not scored", bar_width + _BESIDE_BAR)
    mark = "*" if scored.chosen[row, place] else " "
    return f"{padded(bar(score, bar_width, is_ascii=style.is_ascii), bar_width)} {score:.3f}{mark}"


def bar(share: float, width: int, *, is_ascii: bool) -> str:
    """Draw a share of a width, in eighths of a column where characters for that may be used.

    >>> bar(0.53, 10, is_ascii=False), bar(0.53, 10, is_ascii=True)
    ('█████▎', '#####')
    """
    if is_ascii:
        return "#" * round(share * width)
    full, eighths = divmod(round(share * width * 8), 8)
    return "█" * full + _EIGHTHS[eighths].strip()


def folded(text: str, width: int, num_lines: int, style: Style) -> list[str]:
    """Break a text into lines of at most `width` columns, and cut it where it has more than `num_lines`."""
    lines: list[str] = []
    while text and len(lines) < num_lines:
        if len(lines) == num_lines - 1:
            return [*lines, _cut(text, width, style)]
        line = _fitting(text, width)
        lines.append(line)
        text = text[len(line) :]
    return lines


def _cut(text: str, width: int, style: Style) -> str:
    """The text, or as much of it as fits before a sign that it goes on."""
    if display_width(text) <= width:
        return text
    ending = "..." if style.is_ascii else "…"
    return _fitting(text, width - len(ending)) + ending


def _fitting(text: str, width: int) -> str:
    """The longest beginning of a text that takes at most `width` columns, one character at least."""
    taken = 0
    for place, character in enumerate(text):
        taken += display_width(character)
        if taken > width and place > 0:
            return text[:place]
    return text


def says_utf8(environ: Mapping[str, str]) -> bool:
    """Whether whoever reads the output is likely to read UTF-8: by the environment, the only one to say so.

    batchzs itself writes UTF-8 whatever it says; where it says otherwise bars do without block characters.

    >>> says_utf8({"LANG": "zh_CN.UTF-8"}), says_utf8({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}), says_utf8({})
    (True, False, True)
    """
    stated = environ.get("PYTHONIOENCODING", "").partition(":")[0]
    if not stated:
        name = next((environ[key] for key in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(key)), "C.UTF-8")
        stated = name.partition(".")[2].partition("@")[0]
    return stated.lower().replace("-", "").replace("_", "") in {"utf8", "utf8sig"}


def texts_to_json(scored: Sequence[Scored], rows: ShardRows) -> Iterator[dict[str, Any]]:
    """The same as values for JSON, a text each; every label's score, best first in each wording."""
    for row in range(rows.num_rows):
        first = scored[0].frame
        is_read = rows.statuses[row] == OK
        yield {
            "source_file": rows.source_files[row] or None,
            "source_row": int(rows.source_rows[row]) if rows.source_files[row] else None,
            "text": rows.texts[row] if is_read else None,
            "status": first["status"][row] if is_read else rows.statuses[row],
            "reason": first["reason"][row] if is_read else rows.reasons[row],
            "num_tokens": first["num_tokens"][row],
            "truncated": first["truncated"][row],
            "wordings": [_wording_to_json(one, row) for one in scored],
        }


def _wording_to_json(scored: Scored, row: int) -> dict[str, Any]:
    names, frame = scored.wording.names, scored.frame
    entry = {"template": scored.wording.template, "label": frame["label"][row], "score": frame["score"][row]}
    if "labels" in frame.columns:
        labels = frame["labels"][row]
        entry["labels"] = None if labels is None else labels.to_list()
    if frame["status"][row] != OK:
        return {**entry, "scores": None}
    ranked = rank_labels(scored.scores[row : row + 1])[0].tolist()
    scores = [{"label": names[place], "score": float(scored.scores[row, place])} for place in ranked]
    return {**entry, "scores": scores}
