"""What all pictures share: colours, sizes, axes, and how Vega-Lite makes SVG of a chart.

Colours are the page's (CSS variables), so that a picture is dark where the page is; text stays text, in the page's
fonts. Room for names and figures is counted here and not measured: the machine that draws may not have the fonts of the
one that shows. What a picture shows stands beside it as a table, so that it carries no words for screen readers itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import altair as alt
import vl_convert

from batchzs.report.shown import fitted, shown, width_em

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: About the inside of a card on a phone, in CSS pixels: there a picture is shown as large as it is drawn.
NARROW = 320
WIDE = 980
SMALL = 150  # two beside each other on a phone

INK, MUTED, LINE = "var(--ink, #1b2330)", "var(--muted, #566072)", "var(--line, #dde2ea)"
BAR, MARKED, PALE = "var(--bar, #2f6fde)", "var(--warn, #a84b06)", "var(--pale, #8b95a5)"
FONT_SIZE = 12

_FONT = "var(--font, sans-serif)"
_FIGURE_ROOM = 34  # for "1.5M"
_SIZE = re.compile(r'^<svg([^>]*?) width="[0-9.]+" height="[0-9.]+"')


@dataclass(frozen=True, slots=True)
class NamesRoom:
    """What names beside a chart take, as it is reckoned here: what draws measures them with fonts of its own."""

    left: float
    top: float = 6.0


def svg(
    chart: alt.Chart | alt.LayerChart | alt.FacetChart,
    width: int,
    height: int,
    *,
    has_x_grid: bool = False,
    room: NamesRoom | None = None,
) -> str:
    """Draw a chart as large as it is said to be, whatever its axes take.

    Args:
        chart: the chart.
        width: of the picture.
        height: of the picture.
        has_x_grid: whether lines go up from the axis below.
        room: for names, where they are the chart's only axes; otherwise what the axes take is measured.
    """
    padding = {"left": 0.0, "right": 8.0, "top": 6.0, "bottom": 4.0}
    autosize = alt.AutoSizeParams(type="fit", contains="padding")
    if room is not None:
        padding |= {"left": room.left, "top": room.top}
        autosize = alt.AutoSizeParams(type="none", contains="padding")
    axis = {"labelFont": _FONT, "titleFont": _FONT, "labelColor": MUTED, "titleColor": MUTED}
    size = {"labelFontSize": FONT_SIZE - 1, "titleFontSize": FONT_SIZE - 1, "titleFontWeight": "normal"}
    lines = {"domainColor": LINE, "tickColor": LINE, "gridColor": LINE}
    drawn = (
        chart.properties(
            width=width,
            height=height,
            background="transparent",
            autosize=autosize,
            padding=padding,
        )
        .configure(aria=False)
        .configure_view(stroke=None)
        .configure_axis(**axis, **size, **lines)
        .configure_axisX(grid=has_x_grid)
        .configure_text(font=_FONT, fontSize=FONT_SIZE, color=INK)
    )
    spec = drawn.to_dict()
    picture = vl_convert.vegalite_to_svg(spec, vl_version=".".join(alt.SCHEMA_VERSION.split(".")[:2]).removeprefix("v"))
    return _SIZE.sub(r'<svg\1 aria-hidden="true" focusable="false"', picture, count=1)


def data(rows: Sequence[Mapping[str, object]]) -> alt.InlineData:
    """A chart's rows."""
    return alt.InlineData(values=[dict(row) for row in rows])


def lookup(index: str, names: Sequence[str]) -> str:
    """A Vega expression for a name by its index: equal names, and an order that is not theirs, are kept."""
    quoted = ",".join('"' + re.sub(r'[\\"]', r"\\\g<0>", name) + '"' for name in names)
    return f"[{quoted}][{index}]"


def logarithmic(field: str, highest: int | None) -> alt.Y:
    """An axis on which one row can be seen beside a million: where rows are unsure, there are few.

    Without `highest` it has no figures.
    """
    axis = None
    if highest is not None:
        powers = [10**power for power in range(len(str(max(highest, 1))))]
        axis = _figures([0, *powers[:: 1 + len(powers) // 5]])
    return alt.Y(f"{field}:Q", axis=axis, stack=False, scale=alt.Scale(type="symlog", domainMin=0, nice=False))


def linear(field: str) -> alt.Y:
    """An axis for counts."""
    return alt.Y(f"{field}:Q", axis=_figures(None), stack=False)


def _figures(values: Sequence[float] | None) -> alt.Axis:
    axis = alt.Axis(
        title=None,
        labelOverlap=False,
        domain=False,
        ticks=False,
        labelExpr="format(datum.value, '~s')",
        minExtent=_FIGURE_ROOM,
        maxExtent=_FIGURE_ROOM,
    )
    if values is None:
        axis["tickCount"], axis["tickMinStep"] = 4, 1
    else:
        axis["values"] = list(values)  # of which Vega would leave out some if it were told how many to draw
    return axis


def names_axis(names: Sequence[str], max_em: float) -> tuple[alt.Axis, float]:
    """An axis of names for a scale of their indices, and the room that it takes."""
    cut = [fitted(shown(name), max_em) for name in names]
    room = FONT_SIZE * max(map(width_em, cut), default=0) + 8
    axis = alt.Axis(
        title=None,
        ticks=False,
        domain=False,
        labelLimit=0,
        labelOverlap=False,
        labelPadding=6,
        minExtent=room,
        maxExtent=room,
        labelFontSize=FONT_SIZE,
        labelColor=INK,
        labelExpr=lookup("datum.value", cut),
    )
    return axis, room
