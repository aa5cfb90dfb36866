"""A model is opened without its weights: digests taken once, labels and lengths that must fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from batchzs.errors import ModelError, UsageError
from batchzs.models.checkpoint import file_digest
from batchzs.models.classes import ClassIndices
from batchzs.models.opening import OpenedModel, open_model
from tests.builders import make_job, odd_folder, write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from batchzs.records import ModelRecord


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny StructBERT."""
    return write_checkpoint(odd_folder(tmp_path))


def opened(folder: Path, known: ModelRecord | None = None, **changes: object) -> OpenedModel:
    """Open the checkpoint for a job."""
    settings = {"model": {"path": str(folder)}, "engine": {"max_length": 64}} | changes
    return open_model(make_job(**settings), known, offline=True)


def test_files_are_those_that_decide_scores_with_their_digests(folder: Path) -> None:
    """The fingerprint is made of them."""
    files = opened(folder).files
    assert {file.name: file.sha256 for file in files} == {
        name: file_digest(folder / name) for name in ("pytorch_model.bin", "config.json", "vocab.txt")
    }
    assert [file.size_bytes for file in files] == [(folder / file.name).stat().st_size for file in files]


def test_the_record_holds_the_settled_classes(folder: Path) -> None:
    """StructBERT's own, or the job's."""
    record = opened(folder).record(3)
    assert (record.entailment_id, record.neutral_id, record.contradiction_id) == (0, 1, 2)
    stated = opened(folder, model={"path": str(folder), "entailment_id": 2, "contradiction_id": 0})
    assert stated.classes(3) == ClassIndices(2, 0, 1)
    with pytest.raises(ModelError, match="does not say"):
        opened(folder).record(2)


def test_a_known_digest_is_trusted_while_size_and_time_stay(folder: Path) -> None:
    """A resumed run does not read the weights to find that they are the same, and does when they were touched."""
    record = opened(folder).record(3)
    known = record.model_copy(
        update={"files": tuple(file.model_copy(update={"sha256": "0" * 64}) for file in record.files)}
    )
    assert {file.sha256 for file in opened(folder, known).files} == {"0" * 64}
    path = folder / "pytorch_model.bin"
    path.write_bytes(path.read_bytes())
    digests = {file.name: file.sha256 for file in opened(folder, known).files}
    assert digests["pytorch_model.bin"] == file_digest(path)
    assert digests["vocab.txt"] == "0" * 64


def test_a_hub_model_that_was_found_before_is_not_looked_for_again(folder: Path) -> None:
    """The directory of the first attempt serves while id and revision stay."""
    record = opened(folder).record(3).model_copy(update={"hub_id": "damo/tiny", "revision": "v1"})
    again = opened(folder, record, model={"id": "damo/tiny", "revision": "v1"})
    assert again.checkpoint.directory == folder


def test_a_length_beyond_the_models_positions_is_refused(folder: Path) -> None:
    """Case Z1: the limit is the network's own, whatever the tokenizer's settings say."""
    for stated in ("{}", '{"model_max_length": 1000000000000000019884624838656}', '{"model_max_length": 20}'):
        (folder / "tokenizer_config.json").write_text(stated, encoding="utf-8")
        with pytest.raises(UsageError, match=r"engine\.max_length is 65, but the model takes at most 64 tokens"):
            opened(folder, engine={"max_length": 65})
        assert opened(folder, engine={"max_length": 64}).tokenizer.encode(["科" * 100]).lengths.tolist() == [100]


def test_a_label_that_leaves_no_room_for_the_text_is_refused(folder: Path) -> None:
    """Case Z2: before any weight is loaded, naming the label."""
    labels = ["科技", {"name": "长", "hypothesis": "科" * 46}]
    with pytest.raises(UsageError, match="label '长': its hypothesis has 46 tokens"):
        opened(folder, labels=labels)
