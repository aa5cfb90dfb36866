"""Progress inside a shard: what was written is what is recovered, up to the first damage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchzs.errors import MachineError
from batchzs.journal import KEY_BYTES, MAGIC, NoJournal, ShardJournal
from tests.builders import odd_folder

if TYPE_CHECKING:
    from pathlib import Path

KEY = bytes(range(KEY_BYTES))
#: What a record of one float32 row of three classes takes: length and checksum, seconds, three numbers.
RECORD_BYTES = 8 + 8 + 12


class FakeClock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """The time that the test set."""
        return self.now_s


def batch(value: float, num_pairs: int = 1) -> np.ndarray:
    """A batch of logits that all are one value."""
    return np.full((num_pairs, 3), value, dtype=np.float32)


def write(path: Path, batches: list[np.ndarray]) -> None:
    """Write one record a batch."""
    with ShardJournal(path, KEY, interval_s=30) as journal:
        journal.recover(3)
        for logits in batches:
            journal.add(logits)
            journal.write_pending()


def recover(path: Path, key: bytes = KEY) -> np.ndarray:
    """What a later attempt takes over."""
    with ShardJournal(path, key, interval_s=30) as journal:
        return journal.recover(3)


def test_a_record_by_hand(tmp_path: Path) -> None:
    """The file is the header, then length, checksum, seconds and little-endian float32, as the module says."""
    path = tmp_path / "shard.journal"
    clock = FakeClock()
    with ShardJournal(path, KEY, interval_s=30, clock=clock) as journal:
        journal.recover(3)
        clock.now_s = 2.0
        journal.add(np.array([[1.0, -2.0, 0.5]], dtype=np.float32))
    content = path.read_bytes()
    assert content[: len(MAGIC) + KEY_BYTES] == MAGIC + KEY
    record = content[len(MAGIC) + KEY_BYTES :]
    assert record[:4] == (8 + 12).to_bytes(4, "little")
    # 2.0 as a double is sign 0, exponent 1024, mantissa 0: 0x4000000000000000; 1, -2, 0.5 as floats likewise.
    assert record[8:].hex() == "0000000000000040" + "0000803f" + "000000c0" + "0000003f"


@given(sizes=st.lists(st.integers(1, 20), max_size=8), seed=st.integers(0, 2**32 - 1))
def test_what_goes_in_comes_out(sizes: list[int], seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever batches are added, their logits are recovered in order, bit for bit, over several attempts."""
    path = odd_folder(tmp_path_factory.mktemp("journal")) / "shard.journal"
    draw = np.random.default_rng(seed)
    batches = [draw.standard_normal((size, 3)).astype(np.float32) for size in sizes]
    half = len(batches) // 2
    write(path, batches[:half])
    write(path, batches[half:])
    expected = np.concatenate([np.empty((0, 3), np.float32), *batches])
    assert recover(path).tobytes() == expected.tobytes()


def test_a_file_cut_anywhere_gives_the_records_before_the_cut(tmp_path: Path) -> None:
    """Cut at every byte: whole records before it are recovered, the torn one is dropped, and writing goes on."""
    whole = tmp_path / "whole.journal"
    write(whole, [batch(0), batch(1), batch(2)])
    content = whole.read_bytes()
    header = len(content) - 3 * RECORD_BYTES
    for cut in range(len(content)):
        path = tmp_path / "cut.journal"
        path.write_bytes(content[:cut])
        num_whole = max(0, (cut - header) // RECORD_BYTES)
        assert recover(path)[:, 0].tolist() == list(range(num_whole))
        write(path, [batch(9)])
        assert recover(path)[:, 0].tolist() == [*range(num_whole), 9]


def test_a_flipped_bit_costs_its_record_and_those_behind_it(tmp_path: Path) -> None:
    """A record whose checksum does not hold ends the recovery: what is behind it may not be where it seems."""
    path = tmp_path / "shard.journal"
    write(path, [batch(0), batch(1), batch(2)])
    content = bytearray(path.read_bytes())
    content[-RECORD_BYTES - 1] ^= 1  # in the second record's payload
    path.write_bytes(content)
    assert recover(path)[:, 0].tolist() == [0]


def test_a_record_holds_in_its_own_place_alone(tmp_path: Path) -> None:
    """Where there are no locks two runs may write one journal: a record behind another run's is not taken for the next.

    Records of 1, 1, 1 and 2 pairs; without the second one, the third stands where pair 1 is expected.
    """
    path = tmp_path / "shard.journal"
    write(path, [batch(0), batch(1), batch(2), batch(3, num_pairs=2)])
    content = path.read_bytes()
    second = len(MAGIC) + KEY_BYTES + RECORD_BYTES
    path.write_bytes(content[:second] + content[second + RECORD_BYTES :])
    assert recover(path)[:, 0].tolist() == [0]


def test_another_key_recovers_nothing(tmp_path: Path) -> None:
    """A journal of another shard, run or plan is begun anew."""
    path = tmp_path / "shard.journal"
    write(path, [batch(0)])
    assert recover(path, bytes(KEY_BYTES)).shape == (0, 3)
    assert recover(path).shape == (0, 3)


@pytest.mark.parametrize("content", [b"", b"batchzs", b"something else, and long enough to be a header" * 3])
def test_a_file_that_is_no_journal_recovers_nothing(tmp_path: Path, content: bytes) -> None:
    """An empty, short or foreign file is begun anew."""
    path = tmp_path / "shard.journal"
    path.write_bytes(content)
    assert recover(path).shape == (0, 3)


def test_a_link_is_no_journal(tmp_path: Path) -> None:
    """Where a journal goes, a link is refused, and what it points to stays as it was."""
    target = tmp_path / "target"
    target.write_bytes(b"mine")
    path = tmp_path / "shard.journal"
    path.symlink_to(target)
    with pytest.raises(MachineError, match="is a symbolic link"):
        write(path, [batch(0)])
    assert target.read_bytes() == b"mine"


def test_a_record_is_written_before_the_interval_could_pass(tmp_path: Path) -> None:
    """With batches of 4 s and an interval of 10 s a record is due after the second: a third could end past it."""
    path = tmp_path / "shard.journal"
    clock = FakeClock()
    sizes = []
    with ShardJournal(path, KEY, interval_s=10, clock=clock) as journal:
        journal.recover(3)
        for number in range(1, 5):
            clock.now_s = 4.0 * number
            journal.add(batch(number))
            sizes.append((path.stat().st_size - len(MAGIC) - KEY_BYTES) // RECORD_BYTES)
    # 4 s pending + 4 s for a next batch < 10 s: not yet; 8 s + 4 s >= 10 s: now, both batches in one record.
    assert sizes == [0, 1, 1, 2]


def test_seconds_add_up_over_attempts(tmp_path: Path) -> None:
    """The scoring time of recovered batches is known."""
    path = tmp_path / "shard.journal"
    clock = FakeClock()
    for _ in range(2):
        with ShardJournal(path, KEY, interval_s=100, clock=clock) as journal:
            journal.recover(3)
            clock.now_s += 2.5
            journal.add(batch(0))
        clock.now_s += 1000  # between attempts
    with ShardJournal(path, KEY, interval_s=100, clock=clock) as journal:
        assert journal.recovered_s == pytest.approx(5.0)


def test_an_error_on_its_way_still_writes_what_is_pending(tmp_path: Path) -> None:
    """A stop between two records loses no whole batch."""
    path = tmp_path / "shard.journal"

    def interrupted() -> None:
        with ShardJournal(path, KEY, interval_s=100) as journal:
            journal.recover(3)
            journal.add(batch(7))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert recover(path)[:, 0].tolist() == [7]


def test_a_folder_that_is_gone_is_the_machines_fault(tmp_path: Path) -> None:
    """The message names the file and what to do."""
    with pytest.raises(MachineError, match=r"shard\.journal: progress inside the shard cannot be kept"):
        ShardJournal(tmp_path / "no such folder" / "shard.journal", KEY, interval_s=30)


def test_no_journal_keeps_nothing() -> None:
    """The engine without a journal scores everything."""
    with NoJournal() as journal:
        journal.add(batch(1))
        assert journal.recover(2).shape == (0, 2)
