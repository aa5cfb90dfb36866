"""How far a run is: a tqdm bar on a terminal, a plain line every so often anywhere else.

Rows are counted by the share of their shard's tokens that is scored, because long texts come first: the bar moves at
the pace of the work and the ETA holds from the beginning.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, NoReturn, Protocol

from batchzs.logs import fields

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

    from tqdm import tqdm

logger = logging.getLogger(__name__)

#: Between two progress lines where there is no terminal: a night's log stays readable, a stalled run shows.
LINE_INTERVAL_S = 30.0


class Progress(Protocol):
    """What a run tells of its advance."""

    def start(self, num_rows: int, num_done: int) -> None:
        """Begin: so many rows in all, so many of them done by earlier attempts."""

    def advance(self, rows: float, tokens: int) -> None:
        """Count work done since the last call."""

    def publish(self, num_pairs: int, num_tokens: int) -> None:
        """Count the work of shards that are complete, now or in earlier attempts."""

    def budget(self, limit_tokens: int, num_backoffs: int) -> None:
        """Take note how many tokens a batch may have now, and how often memory ran out in this attempt."""

    def quarantine(self, num_rows: int) -> None:
        """Count rows that turned out to be quarantined, now or in earlier attempts."""

    def close(self) -> None:
        """End the display."""


class NoProgress:
    """Shows nothing."""

    def start(self, num_rows: int, num_done: int) -> None:
        """Show nothing."""

    def advance(self, rows: float, tokens: int) -> None:
        """Show nothing."""

    def publish(self, num_pairs: int, num_tokens: int) -> None:
        """Show nothing."""

    def budget(self, limit_tokens: int, num_backoffs: int) -> None:
        """Show nothing."""

    def quarantine(self, num_rows: int) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Show nothing."""


class TerminalProgress:
    """A tqdm bar on a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._bar: tqdm[NoReturn] | None = None
        self._num_tokens = 0
        self._num_quarantined = 0
        self._budget = ""
        self._started_s = 0.0

    def start(self, num_rows: int, num_done: int) -> None:
        """Draw the bar."""
        from tqdm import tqdm

        self._started_s = time.monotonic()
        self._bar = tqdm(
            total=num_rows,
            initial=num_done,
            unit="row",
            unit_scale=True,
            file=self._stream,
            dynamic_ncols=True,
            smoothing=0.1,  # the last minutes' pace: batches get shorter towards a shard's end
            bar_format="{percentage:3.0f}%|{bar}| {n:,.0f}/{total:,} rows [{elapsed}<{remaining}{postfix}]",
            postfix="starting",
        )

    def advance(self, rows: float, tokens: int) -> None:
        """Move the bar."""
        if self._bar is None:
            return
        self._num_tokens += tokens
        elapsed_s = max(time.monotonic() - self._started_s, 1e-9)
        quarantined = f", {self._num_quarantined:,} quarantined" if self._num_quarantined else ""
        pace = f"{self._num_tokens / elapsed_s:,.0f} tokens/s"
        self._bar.set_postfix_str(f"{pace}{self._budget}{quarantined}", refresh=False)
        self._bar.update(rows)

    def publish(self, num_pairs: int, num_tokens: int) -> None:
        """Show nothing: rows and tokens are counted as they advance."""

    def budget(self, limit_tokens: int, num_backoffs: int) -> None:
        """Show from the bar's next move on."""
        self._budget = f", {limit_tokens:,} a batch" + (f" after {num_backoffs:,} backoffs" if num_backoffs else "")

    def quarantine(self, num_rows: int) -> None:
        """Show at once: the last shard's rows are known only after the bar's last move."""
        self._num_quarantined += num_rows
        self.advance(0.0, 0)
        if self._bar is not None:
            self._bar.refresh()

    def close(self) -> None:
        """Leave the bar as it stands."""
        if self._bar is not None:
            self._bar.close()


class LineProgress:
    """A line in the log every `interval_s` seconds.

    Args:
        interval_s: seconds between lines.
        clock: gives seconds, another one in tests.
    """

    def __init__(self, interval_s: float = LINE_INTERVAL_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._num_rows = 0
        self._done = 0.0
        self._done_before = 0.0
        self._num_tokens = 0
        self._num_quarantined = 0
        self._limit_tokens = self._num_backoffs = 0
        self._started_s = 0.0
        self._last_line_s = 0.0

    def start(self, num_rows: int, num_done: int) -> None:
        """Begin counting."""
        self._num_rows = num_rows
        self._done = self._done_before = float(num_done)
        self._started_s = self._last_line_s = self._clock()

    def advance(self, rows: float, tokens: int) -> None:
        """Count, and log a line when one is due."""
        self._done += rows
        self._num_tokens += tokens
        now_s = self._clock()
        if now_s - self._last_line_s < self._interval_s:
            return
        self._last_line_s = now_s
        elapsed_s = max(now_s - self._started_s, 1e-9)
        rows_per_s = (self._done - self._done_before) / elapsed_s
        tokens_per_s = self._num_tokens / elapsed_s
        backoffs = f", {self._limit_tokens:,} tokens a batch after {self._num_backoffs:,} backoffs"
        remaining_s = (self._num_rows - self._done) / rows_per_s if rows_per_s > 0 else float("inf")
        logger.info(
            "%s of %s rows (%.1f %%), %s tokens/s, %s to go, %s quarantined%s",
            f"{self._done:,.0f}",
            f"{self._num_rows:,}",
            100 * self._done / max(self._num_rows, 1),
            f"{tokens_per_s:,.0f}",
            format_duration(remaining_s),
            f"{self._num_quarantined:,}",
            backoffs if self._num_backoffs else "",
            extra=fields(
                "progress",
                rows_done=round(self._done),
                rows=self._num_rows,
                tokens_per_s=round(tokens_per_s),
                eta_s=round(remaining_s) if rows_per_s > 0 else None,
                quarantined=self._num_quarantined,
                max_batch_tokens=self._limit_tokens,
                backoffs=self._num_backoffs,
            ),
        )

    def publish(self, num_pairs: int, num_tokens: int) -> None:
        """Show nothing: rows and tokens are counted as they advance."""

    def budget(self, limit_tokens: int, num_backoffs: int) -> None:
        """Keep for the next line."""
        self._limit_tokens, self._num_backoffs = limit_tokens, num_backoffs

    def quarantine(self, num_rows: int) -> None:
        """Count for the next line."""
        self._num_quarantined += num_rows

    def close(self) -> None:
        """Nothing is on the screen."""


def format_duration(seconds: float) -> str:
    """Write a span of time for people.

    >>> format_duration(8.25), format_duration(75), format_duration(7384), format_duration(float("inf"))
    ('8.2 s', '1 min 15 s', '2 h 03 min', 'unknown time')
    """
    if seconds == float("inf"):
        return "unknown time"
    if seconds < 59.95:  # from here on it would read 60.0
        return f"{seconds:.1f} s"
    minutes, rest_s = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest_s:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
