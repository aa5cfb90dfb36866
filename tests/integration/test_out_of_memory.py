"""Memory runs out: smaller batches where they help, one clear end where nothing does (cases O1 to O4).

With the stand-in, and for real: a network on the CPU whose process may not map more memory than a small batch takes.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from tests.integration.conftest import Ended, Finished, Running, Workshop

#: Address space above what a run with small batches takes. A planned batch's intermediate layer alone takes more.
HEADROOM_BYTES = 100 * 2**20
SMALL_BATCH_TOKENS = 64
BATCH_TOKENS = 4096
#: A token takes 512 kB in the intermediate layer, a planned batch 2 GB, and as much again for its GELU.
INTERMEDIATE_SIZE = 131_072
NUM_ROWS = 60


def test_smaller_batches_do_it(standard: Workshop, finished: Finished) -> None:
    """Where a planned batch does not fit it is divided, each time counted, and the results are the same."""
    result = standard.run("run", standard.standard_job, hook={"stand_in": True, "fail_above_tokens": 530})
    assert result.code == 0, result.stderr
    assert standard.is_like(finished)
    splits = [standard.record(f"shards/{path.name}")["splits"] for path in standard.state.glob("shards/*")]
    assert standard.record("summary.json")["num_splits"] == sum(map(len, splits)) > 0
    assert all(split["limit_tokens"] < split["batch_tokens"] for shard in splits for split in shard)
    assert re.search(r"out of memory with \d+ pairs x \d+ tokens \(\d+ tokens\): going on with at most", result.stderr)


@pytest.mark.slow
def test_nothing_fits(standard: Workshop, finished: Finished) -> None:
    """At one pair the run ends with 8 and says so; what was published is not touched, and the same command goes on."""
    standard.run("run", standard.standard_job, hook={"stand_in": True, "crash": "shard-published:2"})
    hook = {"stand_in": True, "fail_above_tokens": 1}
    # What had been scored of the next shard is in its journal: if that was all of it, it needs no memory any more.
    assert standard.run("run", standard.standard_job, hook=hook).code == 8
    published = standard.published(finished)
    assert published in ({0, 1}, {0, 1, 2})
    before = standard.moments()
    result = standard.run("run", standard.standard_job, hook=hook)
    assert result.code == 8, result.stderr
    assert "error: out of memory with a single pair of " in result.stderr
    assert result.stderr.count(" error: ") == 1
    assert standard.published(finished) == published
    assert standard.moments() == before
    assert standard.run("run", standard.standard_job).code == 0
    assert standard.is_like(finished)


def test_only_the_longest_do_not_fit(workshop: Workshop) -> None:
    """The batch of long texts is divided; those of short ones stay as planned (longest first: it shows at once)."""
    texts = [f"第{row}条" + "很长" * (200 if row % 3 == 0 else 2) for row in range(18)]
    rows = "".join(f"{row},{text}\n" for row, text in enumerate(texts))
    (workshop.folder / "n.csv").write_text("id,text\n" + rows, encoding="utf-8")
    # Six long texts make 18 pairs of more than 400 tokens, twelve short ones 36 pairs of fewer than 30.
    sections: dict[str, Any] = {"input": {"path": "n.csv"}, "engine": {"max_batch_tokens": 8000}}
    whole = workshop.job("一.yaml", **sections, output={"path": "一"})
    assert workshop.run("run", whole).code == 0
    result = workshop.run("run", workshop.job(**sections), hook={"stand_in": True, "fail_above_tokens": 5000})
    assert result.code == 0, result.stderr
    assert workshop.record("summary.json")["num_splits"] == 1
    assert workshop.shards() == workshop.shards(workshop.folder / "一")


def write_wide_checkpoint(folder: Path, small: Path) -> None:
    """Write the small checkpoint with a wide intermediate layer, which takes little on disk and much in a batch."""
    import torch

    folder.mkdir()
    config = json.loads((small / "config.json").read_bytes())
    (folder / "vocab.txt").write_bytes((small / "vocab.txt").read_bytes())
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": INTERMEDIATE_SIZE}))
    state = torch.load(small / "pytorch_model.bin", weights_only=True)
    generator = torch.Generator().manual_seed(1)
    for key, values in state.items():
        size = [INTERMEDIATE_SIZE if length == config["intermediate_size"] else length for length in values.shape]
        if list(values.shape) != size:
            state[key] = torch.randn(size, generator=generator) * 0.02
    torch.save(state, folder / "pytorch_model.bin")


def peak_address_space(running: Running) -> tuple[Ended, int]:
    """Wait for a command's end; return how many bytes of addresses it had at its peak as well."""
    peak = 0
    status = Path(f"/proc/{running._process.pid}/status")
    while not running.has_ended:
        found = re.search(r"VmPeak:\s+(\d+) kB", status.read_text())
        peak = max(peak, int(found[1]) * 1024 if found else 0)
        time.sleep(0.02)
    return running.end(), peak


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_network_that_runs_out_of_memory(workshop: Workshop, num_workers: int) -> None:
    """A failure of torch's own is recognised and backed off from; labels are the same, scores within 1e-5 (case O3)."""
    model = workshop.folder / "wide"
    write_wide_checkpoint(model, workshop.model)
    rows = "".join(f"{row},第{row}条新闻{'很长' * (row % 20)}\n" for row in range(NUM_ROWS))
    (workshop.folder / "n.csv").write_text("id,text\n" + rows, encoding="utf-8")

    def job(name: str, max_batch_tokens: int) -> Path:
        return workshop.job(
            f"{name}.yaml",
            input={"path": "n.csv"},
            model={"path": str(model)},
            output={"path": name, "shard_rows": NUM_ROWS},
            engine={"max_batch_tokens": max_batch_tokens, "workers": num_workers},
        )

    small, peak = peak_address_space(workshop.start("run", job("small", SMALL_BATCH_TOKENS), hook=None))
    assert small.code == 0, small.stderr
    unlimited = workshop.run("run", job("unlimited", BATCH_TOKENS), hook=None)
    assert unlimited.code == 0, unlimited.stderr
    limit_kib = (peak + HEADROOM_BYTES) // 1024
    limited = workshop.run("run", job("limited", BATCH_TOKENS), hook=None, script=f'ulimit -v {limit_kib}; exec "$@"')
    assert limited.code == 0, limited.stderr
    assert "out of memory with" in limited.stderr
    assert workshop.record("summary.json", workshop.folder / "limited")["num_splits"] > 0
    assert workshop.record("summary.json", workshop.folder / "unlimited")["num_splits"] == 0
    tables = [workshop.table(workshop.folder / name) for name in ("limited", "unlimited")]
    assert tables[0].drop("score", "scores", "logits").equals(tables[1].drop("score", "scores", "logits"))
    scores = [np.array(table["scores"].to_list()) for table in tables]
    difference = float(np.abs(scores[0] - scores[1]).max())
    splits = workshop.record("summary.json", workshop.folder / "limited")["num_splits"]
    print(f"\n{splits} splits under {limit_kib} KiB; largest difference {difference:.2g}")  # noqa: T201 - a figure for docs
    assert difference <= 1e-5
