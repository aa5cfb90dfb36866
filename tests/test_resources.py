"""What `auto` comes to, once, and what a resumed run takes over."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from batchzs import resources
from batchzs.errors import MachineError
from batchzs.models.device import Placement
from batchzs.resources import (
    adopt,
    load_pair_model,
    max_batch_tokens,
    place,
    place_workers,
    precision_again,
    resolve,
)
from batchzs.test_hook import StandInModel, TestHook
from tests.builders import make_job, odd_folder, resolved, write_checkpoint

CPU = Placement("cpu", "cpu", "A CPU")
GPU = Placement("cuda:0", "cuda", "A GPU")
NO_HOOK = TestHook()
STAND_IN = TestHook(stand_in=True)


@pytest.fixture(autouse=True)
def three_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine grants."""
    monkeypatch.setattr(resources, "granted_cpus", lambda _: 3)


def test_auto_on_a_cpu() -> None:
    """As many workers as CPUs, each with a single thread, so that their number changes no bit."""
    found = resolve(make_job(engine__precision="fp32"), CPU, NO_HOOK)
    assert (found.device_kind, found.threads, found.workers) == ("cpu", 1, 3)


def test_auto_on_a_gpu() -> None:
    """fp16, a large budget, the CPUs that were granted, a second batch queued behind the one that runs."""
    found = resolve(make_job(), GPU, NO_HOOK)
    assert (found.device_kind, found.precision, found.threads) == ("cuda", "fp16", 3)
    assert (found.max_batch_tokens, found.labels_per_chunk, found.workers) == (65536, 64, 2)
    assert found.shard_rows == 100_000


def test_a_process_a_gpu_or_as_many_on_a_cpu_as_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """`engine.workers` says how many batches are under way on each GPU, and how many processes a CPU gets."""
    monkeypatch.setattr(resources, "all_gpus", lambda: (GPU, Placement("cuda:1", "cuda", "A GPU")))
    job = make_job(engine__device="all", engine__workers=4)
    assert [each.device for each in place_workers(job, GPU)] == ["cuda:0", "cuda:1"]
    assert place_workers(job, CPU) == [CPU] * 4
    assert place_workers(make_job(engine__device="all"), CPU) == [CPU] * 3


def test_what_the_job_says_is_taken() -> None:
    """Every setting that it has."""
    job = make_job(engine={"precision": "fp32", "max_batch_tokens": 123, "labels_per_chunk": 7}, output__shard_rows=50)
    found = resolve(job, CPU, NO_HOOK)
    assert (found.precision, found.max_batch_tokens, found.labels_per_chunk, found.shard_rows) == ("fp32", 123, 7, 50)


def test_another_precision_than_the_jobs_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """Promise 4: nothing is silent."""
    with caplog.at_level("WARNING", logger="batchzs"):
        assert resolve(make_job(engine__precision="fp16"), CPU, NO_HOOK).precision == "fp32"
    assert [record.getMessage() for record in caplog.records] == ["fp16 is slow on a CPU: scoring in fp32"]


def test_the_budget_follows_the_device_unless_the_job_states_it() -> None:
    """Large batches gain nothing on a CPU."""
    assert max_batch_tokens(make_job(), "cpu") == 4096
    assert max_batch_tokens(make_job(), "cuda") == 65536
    assert max_batch_tokens(make_job(engine__max_batch_tokens=10), "cuda") == 10


@pytest.mark.parametrize(
    ("precision", "begun", "expected"),
    [("auto", "bf16", "bf16"), ("auto", "fp32", "fp32"), ("fp32", "bf16", "fp32"), ("fp16", "fp32", "fp32")],
)
def test_auto_stays_what_it_came_to(precision: str, begun: str, expected: str) -> None:
    """A stated precision counts as resolved on the first run's kind of device: fp16 on a CPU is fp32 again."""
    job = make_job(engine__precision=precision)
    assert precision_again(job, resolved(precision=begun), NO_HOOK) == expected


def test_the_same_kind_of_device_takes_everything_over() -> None:
    """A resumed shard is scored in the batches that it would have been scored in."""
    begun = resolved(threads=17, max_batch_tokens=99)
    assert adopt(make_job(engine__max_batch_tokens=5), begun, CPU) == begun


def test_workers_are_never_more_than_the_machine_grants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their number changes no bit, so a run begun on a large node may go on on a small one."""
    monkeypatch.setattr("batchzs.resources.granted_cpus", lambda _environ: 2)
    assert adopt(make_job(), resolved(workers=64), CPU).workers == 2
    assert adopt(make_job(), resolved(workers=1), CPU).workers == 1
    assert adopt(make_job(engine__workers=3), resolved(workers=64), CPU).workers == 3


def test_another_kind_of_device_is_told_of_and_gets_its_own_budget(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers too are those of the machine at hand; the rest stays: precision, threads, chunks."""
    monkeypatch.setattr("batchzs.resources.granted_cpus", lambda _environ: 6)
    begun = resolved(device_kind="cuda", precision="bf16", max_batch_tokens=65536, threads=16)
    monkeypatch.setattr("batchzs.resources.cpu_has_bf16_units", lambda: True)
    with caplog.at_level("WARNING", logger="batchzs"):
        taken = adopt(make_job(), begun, CPU)
    assert taken == begun.model_copy(update={"max_batch_tokens": 4096, "workers": 6, "threads": 1})
    assert [record.getMessage() for record in caplog.records] == ["this run was begun on cuda and goes on on cpu"]


def test_a_device_that_cannot_do_the_runs_precision_is_refused() -> None:
    """fp16 does not go on on a CPU in another precision: the scores would differ inside one output."""
    begun = resolved(device_kind="cuda", precision="fp16")
    with pytest.raises(MachineError, match="was begun in fp16 on a GPU, and this machine's device is A CPU"):
        adopt(make_job(), begun, CPU)
    assert adopt(make_job(), begun, GPU) == begun


def test_bf16_does_not_go_on_where_no_processor_multiplies_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In software the night would not be enough; who says bf16 in the job means it."""
    monkeypatch.setattr("batchzs.resources.cpu_has_bf16_units", lambda: False)
    begun = resolved(precision="bf16")
    with pytest.raises(MachineError, match="begun in bf16, which A CPU does not multiply in hardware"):
        adopt(make_job(), begun, CPU)
    assert adopt(make_job(engine__precision="bf16"), begun, CPU).precision == "bf16"


def test_the_stand_in_needs_no_device_and_no_checkpoint() -> None:
    """Under the hook whatever the job asks for runs anywhere, in fp32."""
    job = make_job(engine={"device": "cuda:7", "precision": "fp16"})
    placement = place(job, STAND_IN)
    assert placement.kind == "cpu"
    assert resolve(job, placement, STAND_IN).precision == "fp32"
    assert precision_again(job, resolved(), STAND_IN) == "fp32"
    nothing: Any = Path("/absent")
    assert isinstance(load_pair_model(nothing, placement, resolved(), STAND_IN).model, StandInModel)


def test_the_model_is_loaded_with_the_runs_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread count gives other last bits."""
    import torch

    from batchzs.models.opening import open_model

    threads: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    job = make_job(model__path=str(write_checkpoint(odd_folder(tmp_path))), engine__max_length=64)
    loaded = load_pair_model(open_model(job, None, offline=True), CPU, resolved(threads=5), NO_HOOK)
    assert threads == [5]
    assert (loaded.model.num_classes, loaded.model.path) == (3, "packed")
    assert loaded.tokens_per_s > 0
    assert loaded.fitting_tokens == math.inf


def test_without_a_hook_the_device_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job's own words reach the search."""
    monkeypatch.setattr(resources, "find_device", lambda requested: Placement(requested, "cuda", "asked for"))
    assert place(make_job(engine__device="cuda:1"), NO_HOOK).device == "cuda:1"
