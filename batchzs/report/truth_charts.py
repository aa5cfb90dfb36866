"""Pictures of labels held against the truth; see `charts`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt

from batchzs.report.drawing import BAR, NARROW, PALE, NamesRoom, data, names_axis, svg

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchzs.truth.metrics import CalibrationBin

_MAX_NAME_EM = 5.0


def heat_map(names: Sequence[str], columns: Sequence[str], cells: Sequence[Sequence[int]]) -> str:
    """Counts by two kinds of names, each row's share as a colour.

    Args:
        names: of the rows, from the top.
        columns: of the columns, from the left.
        cells: [row][column].
    """
    totals = [sum(row) or 1 for row in cells]
    values = [
        {"row": row, "column": column, "share": cell / totals[row]}
        for row, of_row in enumerate(cells)
        for column, cell in enumerate(of_row)
    ]
    side, side_room = names_axis(names, _MAX_NAME_EM)
    top, top_room = names_axis(columns, _MAX_NAME_EM)
    top["orient"], top["labelAngle"], top["labelPadding"] = "top", -90, 4
    chart = (
        alt.Chart(data(values))
        .mark_rect(color=BAR)
        .encode(
            y=alt.Y("row:O", axis=side, scale=alt.Scale(padding=0.04)),
            x=alt.X("column:O", axis=top, scale=alt.Scale(padding=0.04)),
            opacity=alt.Opacity("share:Q", legend=None, scale=alt.Scale(domain=[0, 1], range=[0.06, 1])),
        )
    )
    return svg(chart, NARROW, int(top_room + 22 * len(names)) + 10, room=NamesRoom(side_room, top_room))


def calibration_chart(bins: Sequence[CalibrationBin]) -> str:
    """How right rows are against how sure they are, in bins that have rows; on the line both agree."""
    axis = alt.Axis(values=[0, 0.25, 0.5, 0.75, 1], format=".2~f")
    scale = alt.Scale(domain=[0, 1], nice=False)
    x = alt.X("score:Q", title="mean score", scale=scale, axis=axis)
    y = alt.Y("right:Q", title="share that is right", scale=scale, axis=axis)
    line = alt.Chart(data([{"score": 0, "right": 0}, {"score": 1, "right": 1}])).mark_line(
        color=PALE, strokeDash=[4, 4], strokeWidth=1.5
    )
    found = alt.Chart(data([{"score": one.mean_score, "right": one.accuracy} for one in bins]))
    curve = found.mark_line(color=BAR, strokeWidth=2, point=alt.OverlayMarkDef(color=BAR, size=40, filled=True))
    return svg(alt.layer(line.encode(x=x, y=y), curve.encode(x=x, y=y)), NARROW, 260, has_x_grid=True)
