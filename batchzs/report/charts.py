"""Pictures of an output's numbers: finished SVG, drawn by Vega-Lite through Altair, so that a page needs no script.

A picture is as wide as a phone and is scaled; what needs more room is drawn a second time, for wide screens.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import altair as alt

from batchzs.report.drawing import (
    BAR,
    FONT_SIZE,
    MARKED,
    MUTED,
    NARROW,
    SMALL,
    NamesRoom,
    data,
    linear,
    logarithmic,
    lookup,
    names_axis,
    svg,
)
from batchzs.report.shown import width_em

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchzs.report.binning import Bin
    from batchzs.report.work import Speed

_MAX_NAME_EM = 9.0


def bar_list(rows: Sequence[tuple[str, int, str]]) -> str:
    """A bar for each name, with a figure at its end.

    Args:
        rows: name, number, and the figure as it is shown.
    """
    values = [{"place": place, "number": number, "figure": figure} for place, (_, number, figure) in enumerate(rows)]
    axis, room = names_axis([name for name, _, _ in rows], _MAX_NAME_EM)
    longest = max((width_em(figure) for _, _, figure in rows), default=0) * FONT_SIZE
    bars_width = max(NARROW - room - 8, 1)
    top = max((number for _, number, _ in rows), default=0) or 1
    base = alt.Chart(data(values)).encode(
        y=alt.Y("place:O", axis=axis),
        x=alt.X(
            "number:Q", axis=None, scale=alt.Scale(domain=[0, top * bars_width / max(bars_width - longest - 16, 1)])
        ),
    )
    bars = base.mark_bar(color=BAR, height={"band": 0.72})
    figures = base.mark_text(align="left", dx=5, baseline="middle", color=MUTED).encode(text="figure:N")
    return svg(alt.layer(bars, figures), NARROW, 24 * len(rows) + 8, room=NamesRoom(room))


def histogram(bins: Sequence[int], title: str) -> str:
    """Rows by a number from 0 to 1."""
    return svg(_score_bars(bins, title, 5), NARROW, 190)


def small_histogram(bins: Sequence[int]) -> str:
    """The same, one of many: shapes to compare, without figures."""
    return svg(_score_bars(bins, None, 2), SMALL, 84)


def _score_bars(bins: Sequence[int], title: str | None, num_ticks: int) -> alt.Chart:
    values = [
        {"from": place / len(bins), "to": (place + 1) / len(bins), "rows": rows}
        for place, rows in enumerate(bins)
        if rows
    ]
    ticks = [place / num_ticks for place in range(num_ticks + 1)]
    chart: alt.Chart = (
        alt.Chart(data(values))
        .mark_rect(color=BAR)
        .encode(
            x=alt.X(
                "from:Q",
                title=title,
                scale=alt.Scale(domain=[0, 1], nice=False),
                axis=alt.Axis(values=ticks, format=".1~f"),
            ),
            x2="to:Q",
            y=logarithmic("rows", max(bins, default=0) if title else None),
            y2=alt.datum(0),
        )
    )
    return chart


def length_chart(bins: Sequence[Bin], width: int) -> str:
    """Texts by length, those that were cut apart."""
    values: list[dict[str, object]] = []
    for place, one in enumerate(bins):
        num_whole = one.num_rows - one.num_marked
        values.append({"place": place, "from": 0, "to": num_whole, "kind": "whole"})
        values.append({"place": place, "from": num_whole, "to": one.num_rows, "kind": "cut"})
    step = max(1, -(-len(bins) // (7 if width == NARROW else 20)))
    axis = alt.Axis(
        title="tokens (bins grow with the length)",
        labelAngle=0,
        labelOverlap=False,
        values=list(range(0, len(bins), step)),
        labelExpr=lookup("datum.value", [f"{one.start:,}" for one in bins]),
    )
    chart = (
        alt.Chart(data(values))
        .mark_bar()
        .encode(
            x=alt.X("place:O", axis=axis, scale=alt.Scale(paddingInner=0.06, paddingOuter=0)),
            y=linear("from"),
            y2="to:Q",
            color=alt.Color("kind:N", legend=None, scale=alt.Scale(domain=["whole", "cut"], range=[BAR, MARKED])),
        )
    )
    return svg(chart, width, 200)


def speed_chart(speed: Speed, backoffs_s: Sequence[float], width: int) -> str:
    """Tokens a second over time, and when batches did not fit."""
    values = [
        {
            "from": round((speed.start_s + place * speed.step_s) * 1000),
            "to": round((speed.start_s + (place + 1) * speed.step_s) * 1000),
            "rate": rate,
        }
        for place, rate in enumerate(speed.tokens_per_s)
    ]
    span_s, num_ticks = speed.step_s * len(speed.tokens_per_s), 4 if width == NARROW else 10
    axis = alt.Axis(format=_clock(span_s), tickCount=num_ticks, labelOverlap=True, labelBound=True)
    if span_s <= 60:  # left alone, ticks of a few seconds are fractions of one, whose labels are alike
        every_s = math.ceil(span_s / num_ticks)
        axis["values"] = [
            1000 * second for second in range(math.ceil(speed.start_s), math.ceil(speed.start_s + span_s), every_s)
        ]
    bars = (
        alt.Chart(data(values))
        .mark_rect(color=BAR)
        .encode(
            x=alt.X("from:T", title="time, UTC", scale=alt.Scale(type="utc", nice=False), axis=axis),
            x2="to:T",
            y=linear("rate"),
            y2=alt.datum(0),
        )
    )
    if not backoffs_s:
        return svg(bars, width, 200)
    times = [{"at": round(time_s * 1000)} for time_s in backoffs_s]
    marks = (
        alt.Chart(data(times))
        .mark_point(shape="triangle-down", filled=True, size=60, color=MARKED, opacity=1)
        .encode(x=alt.X("at:T", scale=alt.Scale(type="utc")), y=alt.value(6))
    )
    return svg(alt.layer(bars, marks), width, 200)


def _clock(span_s: float) -> str:
    """How times are written on an axis of this length."""
    if span_s < 600:
        return "%H:%M:%S"
    if span_s < 86_400:
        return "%H:%M"
    return "%d. %H:%M" if span_s < 5 * 86_400 else "%b %d"
