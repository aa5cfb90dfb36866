"""A hub model is looked for on disk first, fetched only if it may be, and every failure is the model's error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchzs.errors import ModelError
from batchzs.job_sections import ModelConfig
from batchzs.models.hub import WANTED_FILES, locate_model
from tests.builders import odd_folder, run_python, write_checkpoint

HUB = ModelConfig(id="damo/nlp_structbert", revision="v1.0", cache_dir=Path("/缓存 [1]"))


class Hub:
    """ModelScope's download, as far as it is used: what is in the cache, what the network has."""

    def __init__(self, *, cached: Path | None = None, remote: Path | None = None) -> None:
        self._cached = cached
        self._remote = remote
        self.calls: list[dict[str, Any]] = []

    def __call__(self, model_id: str, **settings: Any) -> str:
        """Answer from the cache, or from the network if that is allowed."""
        self.calls.append({"model_id": model_id, **settings})
        found = self._cached if settings["local_files_only"] else self._remote
        if found is None:
            raise ValueError("Cannot find the requested files\nin the cached path")
        return str(found)


def test_a_directory_is_used_as_it_is(tmp_path: Path) -> None:
    """Without a look at the hub, and without its client being imported."""
    hub = Hub()
    folder = odd_folder(tmp_path)
    assert locate_model(ModelConfig(path=folder), offline=False, download=hub) == folder
    assert hub.calls == []
    program = """
import sys
from batchzs.job_sections import ModelConfig
from batchzs.models.hub import locate_model
locate_model(ModelConfig(path="/models/base"), offline=False)
print("modelscope" in sys.modules)
"""
    assert run_python(program) == "False\n"


@pytest.mark.parametrize("offline", [True, False])
def test_a_cached_model_makes_no_connection(tmp_path: Path, offline: bool) -> None:  # noqa: FBT001 - parametrised
    """Case M1: on disk means on disk, whatever the network is like."""
    cached = write_checkpoint(tmp_path / "snapshots" / "v1.0")
    hub = Hub(cached=cached, remote=tmp_path / "other")
    assert locate_model(HUB, offline=offline, download=hub) == cached
    assert hub.calls == [
        {
            "model_id": "damo/nlp_structbert",
            "revision": "v1.0",
            "cache_dir": "/缓存 [1]",
            "local_files_only": True,
            "allow_patterns": WANTED_FILES,
        }
    ]


def test_a_missing_model_is_fetched_with_the_same_arguments(tmp_path: Path) -> None:
    """Into the same cache, in the same revision."""
    hub = Hub(remote=tmp_path)
    assert locate_model(HUB, offline=False, download=hub) == tmp_path
    assert [call.pop("local_files_only") for call in hub.calls] == [True, False]
    assert hub.calls[0] == hub.calls[1]


def test_half_a_snapshot_is_fetched_again(tmp_path: Path) -> None:
    """An interrupted fetch leaves some of the files: taken for the model, they would be in the way for ever."""
    part = write_checkpoint(tmp_path / "v1.0")
    (part / "pytorch_model.bin").unlink()
    hub = Hub(cached=part, remote=tmp_path / "whole")
    assert locate_model(HUB, offline=False, download=hub) == tmp_path / "whole"
    with pytest.raises(ModelError, match="or not whole"):
        locate_model(HUB, offline=True, download=hub)


def test_a_directory_of_unknown_revision_is_not_the_one_that_the_job_names(tmp_path: Path) -> None:
    """Caches of older clients name no revision; without one in the job they will do."""
    old = write_checkpoint(tmp_path / "nlp_structbert")
    hub = Hub(cached=old, remote=tmp_path / "v1.0")
    assert locate_model(HUB, offline=False, download=hub) == tmp_path / "v1.0"
    assert locate_model(ModelConfig(id="damo/nlp_structbert"), offline=True, download=hub) == old


def test_without_a_cache_folder_the_hubs_own_is_used(tmp_path: Path) -> None:
    """Null stays null: the client decides, and is not given the word None."""
    hub = Hub(cached=write_checkpoint(tmp_path / "master"))
    locate_model(ModelConfig(id="damo/nlp_structbert"), offline=True, download=hub)
    assert (hub.calls[0]["cache_dir"], hub.calls[0]["revision"]) == (None, None)


def test_offline_a_missing_model_is_refused_with_the_way_to_fetch_it(tmp_path: Path) -> None:
    """One look into the cache, no connection, and the command to run elsewhere."""
    hub = Hub(remote=tmp_path)
    with pytest.raises(ModelError) as caught:
        locate_model(HUB, offline=True, download=hub)
    message = str(caught.value)
    assert message.startswith("damo/nlp_structbert in revision v1.0 is not in /缓存 [1], or not whole, and it may not")
    assert "run `batchzs fetch JOB`" in message
    assert "\n" not in message
    assert len(hub.calls) == 1


def test_a_failed_fetch_is_a_model_error_on_one_line() -> None:
    """Whatever the client raises: what failed, and what to check."""
    with pytest.raises(ModelError, match=r"could not be fetched from the hub \(Cannot find .* path\): check the id"):
        locate_model(HUB, offline=False, download=Hub())


def test_an_error_without_words_is_named_by_its_kind() -> None:
    """An empty pair of brackets would say nothing."""

    def download(model_id: str, **_: Any) -> str:
        raise TimeoutError if model_id == HUB.id else AssertionError

    with pytest.raises(ModelError, match=r"\(TimeoutError\)"):
        locate_model(HUB, offline=False, download=download)


def test_a_stop_is_no_failed_fetch() -> None:
    """Ctrl-C during a download ends the command and does not try again."""
    calls = []

    def download(model_id: str, **_: Any) -> str:
        calls.append(model_id)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        locate_model(HUB, offline=False, download=download)
    assert len(calls) == 1
