"""The input as a run's state has it: the files that the run was begun with, and those added since, by generations.

The first list lies in `inputs.json` and belongs to the run's record, which holds its digest. Each later generation is
one file, written once and whole, so that whatever is on disk after a kill fits together: a generation is there or not.
It holds the digest of all files up to its own, and is believed only where that is right. Nothing of the input itself
is looked at here.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import ValidationError

from batchzs.durable import move, publish_bytes, publish_new, remove
from batchzs.errors import InputError
from batchzs.inputs.frozen import input_set_from_json, input_set_to_json
from batchzs.inputs.rows import InputSet
from batchzs.records import Generation, read_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from batchzs.paths import RunPaths

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AddedFiles:
    """One generation of files that were added."""

    generation: Generation
    inputs: InputSet  # of these files alone


@dataclass(frozen=True, slots=True)
class KnownInput:
    """All files of a run: those that it was begun with, then each later generation's."""

    first: InputSet
    added: tuple[AddedFiles, ...] = ()

    @property
    def inputs(self) -> InputSet:
        """All files as one frozen input, in the order of their rows."""
        if not self.added:
            return self.first
        files = [file for one in self.parts for file in one.files]
        return InputSet(tuple(files), self.first.carried)

    @property
    def parts(self) -> tuple[InputSet, ...]:
        """Each generation's files."""
        return (self.first, *(one.inputs for one in self.added))

    @property
    def generations(self) -> tuple[Generation, ...]:
        """The records of the generations that were added."""
        return tuple(one.generation for one in self.added)

    @property
    def row_counts(self) -> list[list[int]]:
        """Of each generation the rows of each of its files."""
        return [[file.num_rows for file in part.files] for part in self.parts]


def read_first(paths: RunPaths, digest: str) -> InputSet | None:
    """Read the list of files that the run with this input was begun with; None where it is missing or damaged."""
    for path in (paths.inputs, paths.staged_inputs(digest)):
        inputs = _input_set(read_json(path))
        if inputs is not None and inputs.digest == digest:
            return inputs
    return None


def stage_first(paths: RunPaths, inputs: InputSet) -> None:
    """Store the first list before the run's record is there; of several processes none overwrites another's."""
    _publish(paths.staged_inputs(inputs.digest), input_set_to_json(inputs), paths)


def place_first(paths: RunPaths, digest: str) -> None:
    """Give the staged list that the run's record belongs to its own name, where it has not got it yet."""
    staged = paths.all_staged_inputs()
    if not staged:
        return
    inputs = _input_set(read_json(paths.inputs))
    if inputs is None or inputs.digest != digest:
        with suppress(FileNotFoundError):  # not staged, or another process is doing the same
            move(paths.staged_inputs(digest), paths.inputs)
    for path in staged:  # the others are of attempts that were killed, or not the first
        remove(path)


def write_first(paths: RunPaths, inputs: InputSet) -> None:
    """Store the first list again: its files' places or times are others now, or it was lost."""
    _publish(paths.inputs, input_set_to_json(inputs), paths)


def read_added(paths: RunPaths, first: InputSet) -> tuple[tuple[AddedFiles, ...], Path | None]:
    """Read the generations that were added.

    Args:
        paths: where the output lies.
        first: the files that the run was begun with.

    Returns:
        Them, in order, and the file where they end before their time: damaged, or no continuation of what is before it.
    """
    known = KnownInput(first)
    while True:
        path = paths.generation(len(known.added) + 2)
        one = next_generation(paths, known)
        if one is None:
            return known.added, path if path.exists() else None
        known = KnownInput(first, (*known.added, one))


def next_generation(paths: RunPaths, known: KnownInput) -> AddedFiles | None:
    """Read the generation that continues what is known; None where there is none, or a damaged one."""
    number = len(known.added) + 2
    one = _read(paths.generation(number))
    if one is None or one.generation.number != number or one.inputs.carried != known.first.carried:
        return None
    told = (one.generation.num_files, one.generation.num_rows, one.generation.input_digest)
    whole = KnownInput(known.first, (*known.added, one)).inputs
    return one if told == (len(one.inputs.files), one.inputs.num_rows, whole.digest) else None


def add_generation(paths: RunPaths, known: KnownInput, one: AddedFiles) -> bool:
    """Store a generation; where another process has stored one under the number, that one stays.

    Returns:
        Whether this one is stored.
    """
    path = paths.generation(one.generation.number)
    content = _generation_to_json(one)
    if publish_new(path, json.dumps(content, ensure_ascii=False).encode(), paths.temporary):
        return True
    if next_generation(paths, known) is not None:
        return False
    logger.warning("%s: is damaged: settling this generation again", path)
    _publish(path, content, paths)
    return True


def write_generation(paths: RunPaths, one: AddedFiles) -> None:
    """Store a generation again: its files' places or times are others now."""
    _publish(paths.generation(one.generation.number), _generation_to_json(one), paths)


def stored_generations(paths: RunPaths) -> Iterator[AddedFiles]:
    """Read the generations as they lie there, up to the first that is missing or damaged, and believe them."""
    number = 2
    while (one := _read(paths.generation(number))) is not None:
        yield one
        number += 1


def _read(path: Path) -> AddedFiles | None:
    raw = read_json(path)
    if not isinstance(raw, dict):
        return None
    inputs = _input_set(raw.get("inputs"))
    try:
        return None if inputs is None else AddedFiles(Generation.model_validate(raw.get("generation")), inputs)
    except ValidationError:
        return None


def _input_set(raw: object) -> InputSet | None:
    try:
        return input_set_from_json(raw) if isinstance(raw, dict) else None
    except InputError:
        return None


def _generation_to_json(one: AddedFiles) -> dict[str, object]:
    return {"generation": one.generation.model_dump(mode="json"), "inputs": input_set_to_json(one.inputs)}


def _publish(path: Path, content: dict[str, object], paths: RunPaths) -> None:
    publish_bytes(path, json.dumps(content, ensure_ascii=False).encode(), paths.temporary)
