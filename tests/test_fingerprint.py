"""Two runs are the same run if, and only if, they would give the same results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from batchzs.errors import OtherJobError
from batchzs.fingerprint import digest_of, fingerprint_of, refuse_other_job
from batchzs.plan import Selection
from batchzs.records import FingerprintRecord
from tests.builders import make_job, model_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import JsonValue

OUTPUT = Path("/结果 [1]/out")


def fingerprint(
    *,
    model: dict[str, Any] | None = None,
    precision: str = "fp32",
    selection: Selection | None = None,
    hook: dict[str, JsonValue] | None = None,
    **job: Any,
) -> FingerprintRecord:
    """Take a job's fingerprint, with what is said changed."""
    return fingerprint_of(make_job(**job), model_record(**model or {}), precision, selection or Selection(), hook or {})


def other_file(**changes: Any) -> dict[str, Any]:
    """A model whose file differs."""
    return {"files": tuple(file.model_copy(update=changes) for file in model_record().files)}


SAME = [
    {"engine__device": "cuda:1"},
    {"engine__max_batch_tokens": 100},
    {"engine__labels_per_chunk": 3},
    {"engine__workers": 4},
    {"engine__checkpoint_seconds": 5},
    {"output__path": "/elsewhere"},
    {"output__shard_rows": 5},
    {"input__path": ["/mnt/other/news.parquet"]},
    {"input__max_bad_share": 0.5},
    {"model__path": "/moved/base"},
    {"model": {"directory": "/moved/base"}},
    {"model": {"hub_id": "damo/base", "revision": "v1"}},
    {"model": other_file(mtime_ns=99)},
    {"selection": Selection(seed=5)},
    {"hook": {"delay_s": 1.0}},
    {"hook": {"crash": "batch-scored"}},
    {"hook": {"fail_above_tokens": 10}},
    {"output__scores": "all"},  # what auto comes to
    {"output__logits": True},
]
OTHER = [
    ({"model": other_file(sha256="c" * 64)}, "model files"),
    ({"model": other_file(name="tokenizer.json")}, "model files"),
    ({"model": {"entailment_id": 2, "contradiction_id": 0}}, "model.entailment_id"),
    ({"labels": ["体育", "科技", "财经"]}, "hypotheses"),
    ({"labels": ["科技", "体育", {"name": "财经", "hypothesis": "这是财经"}]}, "hypotheses"),
    ({"labels": ["科技", "体育", {"name": "经济", "hypothesis": "这篇文章的标题是财经"}]}, "labels"),
    ({"engine__max_length": 256}, "engine.max_length"),
    ({"engine__truncate": "head_tail"}, "engine.truncate"),
    ({"precision": "bf16"}, "engine.precision"),
    ({"input__text": ["title"]}, "input.text"),
    ({"input__separator": " "}, "input.separator"),
    ({"hook": {"stand_in": True}}, "test hook"),
    ({"hook": {"nan_every": 7}}, "test hook"),
    ({"input__encoding": "gb18030"}, "input.encoding"),
    ({"input__csv": {"delimiter": ";"}}, "input.csv"),
    ({"input__keep": ["id"]}, "input.keep"),
    ({"input__keep": "all"}, "input.keep"),
    ({"input__partitions": "keep"}, "input.partitions"),
    ({"input__on_bad_rows": "fail"}, "input.on_bad_rows"),
    ({"output__scores": 2}, "output.scores"),
    ({"output__logits": False}, "output.logits"),
    ({"output__prefix": "zs_"}, "output.prefix"),
    ({"output__compression": "snappy"}, "output.compression"),
    ({"selection": Selection(limit=5)}, "--limit"),
    ({"selection": Selection(sample=5)}, "--sample"),
    ({"multi_label": True}, "multi_label"),
    ({"threshold": 0.5}, "threshold"),
]


@pytest.mark.parametrize("changes", SAME, ids=str)
def test_what_changes_no_result_changes_no_fingerprint(changes: dict[str, Any]) -> None:
    """Devices, budgets, places: the run goes on."""
    begun, now = fingerprint(), fingerprint(**changes)
    assert digest_of(begun) == digest_of(now)
    refuse_other_job(begun, now, OUTPUT)


@pytest.mark.parametrize(("changes", "field"), OTHER, ids=str)
def test_what_changes_results_is_refused_by_name(changes: dict[str, Any], field: str) -> None:
    """The refusal names the output, the field and both its values."""
    begun, now = fingerprint(), fingerprint(**changes)
    assert digest_of(begun) != digest_of(now)
    with pytest.raises(OtherJobError) as caught:
        refuse_other_job(begun, now, OUTPUT)
    message = str(caught.value)
    assert message.startswith(f"{OUTPUT}: was begun by another job. What differs:\n")
    assert f"\n  {field}: begun with " in message
    assert "--restart" in message


def test_both_values_of_every_differing_field_are_shown() -> None:
    """Three differences are three lines, in the order of the parts, and nothing else is named."""
    now = fingerprint(engine__max_length=256, output__prefix="zs_", threshold=0.3)
    with pytest.raises(OtherJobError) as caught:
        refuse_other_job(fingerprint(), now, OUTPUT)
    assert [line for line in str(caught.value).splitlines() if line.startswith("  ")] == [
        "  engine.max_length: begun with 512, now 256",
        '  output.prefix: begun with "", now "zs_"',
        "  threshold: begun with nothing, now 0.3",
    ]


def test_where_decide_gives_what_is_asked_for_it_is_named() -> None:
    """Another threshold alone needs no model; without stored logits, or with other scores, it needs one."""
    for changes, is_named in (
        ({"threshold": 0.3}, True),
        ({"multi_label": True}, True),
        ({"threshold": 0.3, "engine__max_length": 256}, False),
        ({"threshold": 0.3, "output__logits": False}, False),
    ):
        with pytest.raises(OtherJobError) as caught:
            refuse_other_job(fingerprint(), fingerprint(**changes), OUTPUT)
        assert ("batchzs decide" in str(caught.value)) == is_named
    with pytest.raises(OtherJobError) as caught:
        refuse_other_job(fingerprint(output__logits=False), fingerprint(output__logits=False, threshold=0.3), OUTPUT)
    assert "batchzs decide" not in str(caught.value)


def test_long_values_are_cut() -> None:
    """A thousand labels do not fill the screen."""
    labels = [f"标签{number}" for number in range(1000)]
    with pytest.raises(OtherJobError) as caught:
        refuse_other_job(fingerprint(), fingerprint(labels=labels, output__scores="all", output__logits=True), OUTPUT)
    assert "..." in str(caught.value)
    assert len(str(caught.value)) < 2000


def test_the_seed_counts_with_a_sample_alone() -> None:
    """Without a sample nothing is drawn."""
    begun = fingerprint(selection=Selection(sample=5, seed=1))
    with pytest.raises(OtherJobError, match="--seed: begun with 1, now 2"):
        refuse_other_job(begun, fingerprint(selection=Selection(sample=5, seed=2)), OUTPUT)


def test_the_digest_survives_being_written_and_read() -> None:
    """A resumed run computes it from the record and finds its own shards."""
    begun = fingerprint(threshold=0.3, input__keep=["编号"], input__csv={"null_values": ["\\N"]})
    again = FingerprintRecord.model_validate_json(begun.model_dump_json())
    assert again == begun
    assert digest_of(again) == digest_of(begun)
    assert len(digest_of(begun)) == 64


def test_a_stated_class_index_that_is_the_usual_one_is_the_same_run() -> None:
    """Indices count as settled, not as written."""
    stated = {"path": "/models/base", "entailment_id": 0, "contradiction_id": 2}
    assert digest_of(fingerprint_of(make_job(model=stated), model_record(), "fp32", Selection(), {})) == digest_of(
        fingerprint()
    )


def test_of_long_values_what_differs_is_shown() -> None:
    """A difference behind the cut would leave two lines that look the same."""
    labels = [f"标签{number}" for number in range(100)]
    with pytest.raises(OtherJobError) as caught:
        refuse_other_job(fingerprint(labels=labels), fingerprint(labels=[*labels[:-1], "另一个"]), OUTPUT)
    assert '  labels: begun with ["标签99"], now ["另一个"]' in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda labels: labels[::-1], "labels: now in another order"),
        (lambda labels: labels[1:], 'labels: no longer ["标签0"]'),
        (lambda labels: [*labels, "另一个"], 'labels: now also ["另一个"]'),
    ],
    ids=["turned", "less", "more"],
)
def test_of_long_lists_an_empty_difference_is_put_into_words(
    change: Callable[[list[str]], list[str]], words: str
) -> None:
    """`now []` would read as if the job had none."""
    labels = [f"标签{number}" for number in range(100)]
    with pytest.raises(OtherJobError) as caught:
        refuse_other_job(fingerprint(labels=labels), fingerprint(labels=change(labels)), OUTPUT)
    assert f"  {words}" in str(caught.value)
    assert "[]" not in str(caught.value)
