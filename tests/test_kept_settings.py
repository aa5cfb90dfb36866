"""What a job asks for and a run that has begun does not do: it is said, never passed over in silence."""

from __future__ import annotations

from typing import Any

import pytest

from batchzs.kept_settings import KeptSetting, kept_settings, say_what_is_kept
from tests.builders import make_job, resolved, run_record

BEGUN: dict[str, Any] = {"engine__max_batch_tokens": 600, "output__shard_rows": 20}


@pytest.mark.parametrize(
    ("first", "now", "used", "kept"),
    [
        ({}, {}, {}, []),
        (BEGUN, BEGUN, {"max_batch_tokens": 600, "shard_rows": 20}, []),
        # Another number, and `auto` where a number stood.
        (BEGUN, {**BEGUN, "engine__max_batch_tokens": 900}, {"max_batch_tokens": 600, "shard_rows": 20}, [
            KeptSetting("engine.max_batch_tokens", "900", "600")
        ]),
        (BEGUN, {**BEGUN, "engine__max_batch_tokens": "auto"}, {"max_batch_tokens": 600, "shard_rows": 20}, [
            KeptSetting("engine.max_batch_tokens", "auto", "600")
        ]),
        (BEGUN, {**BEGUN, "output__shard_rows": "auto"}, {"max_batch_tokens": 600, "shard_rows": 20}, [
            KeptSetting("output.shard_rows", "auto", "20")
        ]),
        ({}, {"engine__labels_per_chunk": 8}, {"shard_rows": 100_000}, [
            KeptSetting("engine.labels_per_chunk", "8", "64")
        ]),
        # What `auto` came to, written out, is what is done.
        ({}, {"engine__max_batch_tokens": 4096}, {}, []),
        # Another kind of device takes the job's own; fewer workers are taken, more are not.
        (BEGUN, {**BEGUN, "engine__max_batch_tokens": 900}, {"max_batch_tokens": 900, "shard_rows": 20}, []),
        ({"engine__workers": 4}, {"engine__workers": 2}, {"workers": 2}, []),
        ({"engine__workers": 2}, {"engine__workers": 8}, {"workers": 2}, [KeptSetting("engine.workers", "8", "2")]),
        ({"engine__workers": 2}, {"engine__workers": "auto"}, {"workers": 2}, []),
        ({"engine__workers": 2}, {"engine__workers": 8, "engine__device": "all"}, {"workers": 2}, []),
    ],
)  # fmt: skip
def test_what_is_kept(
    first: dict[str, Any], now: dict[str, Any], used: dict[str, Any], kept: list[KeptSetting]
) -> None:
    """A key is named where what it asks for now is not what is done."""
    used = {"shard_rows": 100_000, **used}
    assert kept_settings(make_job(**now), run_record(make_job(**first)), resolved(**used)) == kept


def test_it_is_said_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """Which key, what was asked for, what is used, and how to have the other."""
    job = make_job(engine__max_batch_tokens=900)
    with caplog.at_level("WARNING", logger="batchzs"):
        say_what_is_kept(job, run_record(job), resolved(max_batch_tokens=600, shard_rows=100_000))
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == (
        "engine.max_batch_tokens: the job asks for 900, and 600 stays, with which this run was begun: for 900 begin "
        "anew with --restart, or in another output"
    )
