"""Pictures: what is drawn stays in its picture, and time has readable labels."""

from __future__ import annotations

import re

import pytest

from batchzs.report.charts import bar_list, speed_chart
from batchzs.report.drawing import FONT_SIZE, NARROW, WIDE
from batchzs.report.shown import width_em
from batchzs.report.truth_charts import heat_map
from batchzs.report.work import Speed

NAMES = [["体育", "娱乐"], ["很长的标签" * 12, "x" * 60, "<img src=x onerror=alert(1)>"]]


@pytest.mark.parametrize("names", NAMES, ids=["short", "long"])
def test_a_bars_figure_has_room_beside_it(names: list[str]) -> None:
    """However wide the names are for the fonts of the machine that draws."""
    figure = "1,234,567 · 30.8 %"
    picture = bar_list([(name, 20, figure) for name in names])
    left = re.search(r"translate\(([0-9.]+),", picture)
    longest = re.search(r"mark-rect role-mark.*?M0,[0-9.]+h([0-9.]+)", picture, re.DOTALL)
    assert left is not None
    assert longest is not None
    assert float(left[1]) + float(longest[1]) + width_em(figure) * FONT_SIZE < NARROW


def test_names_above_a_table_of_colours_take_what_they_need() -> None:
    """Two characters need no more room above than beside."""
    picture = heat_map(["体育", "娱乐"], ["体育", "娱乐", "(none)"], [[3, 1, 0], [0, 5, 0]])
    assert re.search(r"translate\(32,", picture)


@pytest.mark.parametrize("span_s", [1, 2, 7, 45, 600, 90_000])
@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_no_time_is_written_twice(span_s: int, width: int) -> None:
    """Not on an axis of a second either, whose ticks would be fractions of one."""
    picture = speed_chart(Speed(1_796_000_000.0, span_s, (5.0,)), [], width)
    times = re.findall(r">(\d\d:\d\d(?::\d\d)?)<", picture)
    assert len(times) == len(set(times))
