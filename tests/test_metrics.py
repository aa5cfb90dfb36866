"""Metrics: the file's format, when it is written, and what outlives an attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchzs.metrics import HELP, INTERVAL_S, MetricsFile, format_metrics
from batchzs.paths import RunPaths
from batchzs.progress import NoProgress
from batchzs.summary import summarise
from tests.builders import PATIENT, make_job, run_record, shard_record
from tests.exposition import parse_exposition

if TYPE_CHECKING:
    from pathlib import Path


class Clock:
    """Seconds that a test sets."""

    now_s = 1000.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s


def begin(folder: Path, clock: Clock) -> MetricsFile:
    """Begin an attempt."""
    (folder / "tmp").mkdir(exist_ok=True)
    return MetricsFile(folder / "metrics.prom", folder / "tmp", {"output": "/结果"}, NoProgress(), clock)


def read(folder: Path) -> dict[str, float]:
    """What the file says, by metric without prefix."""
    samples = parse_exposition((folder / "metrics.prom").read_bytes())
    assert {labels for _, labels in samples} == {(("output", "/结果"),)}
    return {name.removeprefix("batchzs_"): value for (name, _), value in samples.items()}


def test_an_attempt_worked_by_hand(tmp_path: Path) -> None:
    """1000 rows, 200 done before; 100 rows and 5000 tokens in 50 s; one shard of 15 pairs and 150 tokens published."""
    clock = Clock()
    metrics = begin(tmp_path, clock)
    assert read(tmp_path) == {"start_time_seconds": 1000, "last_update_time_seconds": 1000}
    clock.now_s = 1010
    metrics.start(1000, 200)
    metrics.publish(600, 9000)
    metrics.quarantine(2)
    clock.now_s = 1010 + INTERVAL_S - 1
    metrics.advance(99.5, 4000)
    assert read(tmp_path)["last_update_time_seconds"] == 1010
    metrics.publish(15, 150)
    clock.now_s = 1060
    metrics.advance(0.5, 1000)
    assert read(tmp_path) == {
        "rows": 1000,
        "rows_done": 300,
        "rows_quarantined": 2,
        "pairs": 615,
        "tokens": 9150,
        "tokens_per_second": 100,
        "start_time_seconds": 1000,
        "last_update_time_seconds": 1060,
    }
    assert list((tmp_path / "tmp").iterdir()) == []


def test_what_outlives_an_attempt(tmp_path: Path) -> None:
    """The last success and the last code stay while another attempt runs, and a failing one leaves the success."""
    clock = Clock()
    job = make_job()
    summary = summarise(job, RunPaths(tmp_path), run_record(job), [shard_record()])
    metrics = begin(tmp_path, clock)
    clock.now_s = 2000.125
    metrics.conclude(summary, 0)
    metrics.end()
    ended = read(tmp_path)
    assert (ended["last_exit_code"], ended["last_success_time_seconds"]) == (0, 2000.125)
    assert (ended["rows"], ended["rows_done"], ended["pairs"], ended["tokens"]) == (5, 5, 15, 150)
    clock.now_s = 3000
    metrics = begin(tmp_path, clock)
    assert read(tmp_path) == ended | {"start_time_seconds": 3000, "last_update_time_seconds": 3000}
    clock.now_s = 3001
    metrics.end(3)
    assert read(tmp_path) == ended | {
        "start_time_seconds": 3000,
        "last_update_time_seconds": 3001,
        "last_exit_code": 3,
    }


@pytest.mark.parametrize("content", [b"", b"\xff\x00", b"batchzs_rows{} 1.2.3\n", b"batchzs_none{} 1\n"])
def test_a_damaged_file_is_written_anew(tmp_path: Path, content: bytes) -> None:
    """What cannot be read is left out."""
    (tmp_path / "metrics.prom").write_bytes(content)
    begin(tmp_path, Clock())
    assert set(read(tmp_path)) == {"start_time_seconds", "last_update_time_seconds"}


def test_a_file_that_cannot_be_written_ends_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One warning, and the run goes on."""
    clock = Clock()
    metrics = MetricsFile(tmp_path / "metrics.prom", tmp_path / "none", {}, NoProgress(), clock)
    metrics.start(10, 0)
    clock.now_s += 2 * INTERVAL_S
    metrics.advance(1, 1)
    metrics.end(0)
    assert len([record for record in caplog.records if "no metrics" in record.getMessage()]) == 1


@PATIENT
@given(
    st.dictionaries(st.sampled_from([name for name, _ in HELP]), st.integers(0, 10**15) | st.floats(0, 1e12)),
    st.text(st.characters(codec="utf-8"), max_size=30),
)
def test_any_label_comes_back(values: dict[str, float], output: str) -> None:
    """Quotes, backslashes and line ends in a path are escaped as the format says; numbers are whole or have a point."""
    text = format_metrics(values, {"output": output, "task": "1/2"})
    samples = parse_exposition(text.encode()) if values else {}
    labels = (("output", output), ("task", "1/2"))
    assert set(samples) == {(name, labels) for name in values}
    for name, value in values.items():
        assert samples[name, labels] == pytest.approx(value, abs=5e-4)
