"""The input's files as they are now, held against what the run's state knows; and new ones taken in.

A run's files are frozen: one that has changed or is missing is refused by name, and so is an additional one, unless the
run is to take new files in. Then they become a generation of their own, behind all rows that are there already.
"""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from batchzs.counted import counted
from batchzs.durable import lock_holder, remove, wait_for_lock
from batchzs.errors import InputError
from batchzs.inputs.discovery import find_files
from batchzs.inputs.frozen import check_unchanged
from batchzs.inputs.pieces import list_names
from batchzs.inputs.rows import InputSet
from batchzs.known_input import (
    AddedFiles,
    KnownInput,
    add_generation,
    place_first,
    read_added,
    read_first,
    stored_generations,
    write_first,
    write_generation,
)
from batchzs.logs import fields
from batchzs.records import Generation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from batchzs.inputs.rows import FoundFile
    from batchzs.inputs.spec import ReadSpec
    from batchzs.paths import RunPaths
    from batchzs.plan import Shard
    from batchzs.prepare import RunContext
    from batchzs.records import RunRecord

logger = logging.getLogger(__name__)

_SHOWN_FILES = 5


@dataclass(frozen=True, slots=True)
class InputNow:
    """The files that are there now, how they are read, and whom to tell while they are."""

    context: RunContext
    spec: ReadSpec
    found: Sequence[FoundFile]

    @property
    def _paths(self) -> RunPaths:
        return self.context.paths

    def freeze_first(self) -> InputSet:
        """Read the files that a run is begun with: all, or where only its record was lost, those not added later."""
        added = [] if self.context.options.restart else list(stored_generations(self._paths))
        names = _names(*(one.inputs for one in added))
        return self._freeze([file for file in self.found if file.name not in names], None)

    def known_with(self, first: InputSet) -> KnownInput:
        """A run's files that is begun, or whose record was lost while generations are there."""
        if self.context.options.restart:
            return KnownInput(first)
        return self._checked(KnownInput(first, self._read_added(first)))

    def known_again(self, begun: RunRecord) -> KnownInput:
        """A run's files, seen to be what is there now; the first ones frozen again where their record was lost.

        Raises:
            InputError: a file is missing, additional, or has another content.
        """
        place_first(self._paths, begun.input_digest)
        frozen = read_first(self._paths, begun.input_digest)
        first = frozen if frozen is not None else self._freeze_again(begun)
        known = self._checked(KnownInput(first, self._read_added(first)))
        if known.first != frozen:
            write_first(self._paths, known.first)
        return known

    def take_in(self, known: KnownInput, plan: Callable[[KnownInput], list[Shard]]) -> KnownInput:
        """Take in files that the run does not know yet, as a new generation.

        A task does so only when every shard is there: while a generation is under way each task does its part of
        that, whatever arrives between their starts. A whole run is alone and does everything.

        Args:
            known: the run's files, from `known_again`.
            plan: cuts them into shards.

        Returns:
            The run's files with the new ones, or with those that another task has taken in meanwhile.

        Raises:
            InputError: a new file cannot be read, or its carried columns do not fit.
        """
        while unseen := self._unseen(known):
            with self._settling():
                added = self._read_added(known.first)
                if len(added) > len(known.added):  # by another process, since
                    known = self._checked(KnownInput(known.first, added))
                    continue
                shards = plan(known)
                if self.context.options.task is not None and not self._are_there(shards):
                    logger.info(
                        "waiting until every shard is there: %s: %s; give --new-files again then",
                        counted(len(unseen), "new file"),
                        list_names([file.name for file in unseen], _SHOWN_FILES),
                        extra=fields("new_files_wait", files=len(unseen)),
                    )
                    break
                known = self._settle(known, unseen, plan)
        return known

    def _settle(
        self, known: KnownInput, unseen: Sequence[FoundFile], plan: Callable[[KnownInput], list[Shard]]
    ) -> KnownInput:
        """Freeze new files and write them down as a generation; one write decides."""
        paths, hook = self._paths, self.context.hook
        inputs = self._freeze(unseen, known.inputs)
        generation = Generation(
            number=len(known.added) + 2,
            num_files=len(inputs.files),
            num_rows=inputs.num_rows,
            num_shards=0,  # counted below
            input_digest=InputSet((*known.inputs.files, *inputs.files), ()).digest,
            begun_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        grown = KnownInput(known.first, (*known.added, AddedFiles(generation, inputs)))
        num_shards = sum(shard.generation == generation.number for shard in plan(grown))
        one = AddedFiles(generation.model_copy(update={"num_shards": num_shards}), inputs)
        hook.reach("generation-frozen")
        # Before, so that no end is ever there with shards missing; and after, for a task that was about to finish.
        remove_end(paths)
        is_stored = add_generation(paths, known, one)
        remove_end(paths)
        hook.reach("generation-recorded")
        if not is_stored:
            return known  # where there are no locks: another process was first, and its generation is read next
        logger.info(
            "generation %d: %s, %s in %s: %s",
            generation.number,
            counted(generation.num_files, "new file"),
            counted(generation.num_rows, "row"),
            counted(num_shards, "shard"),
            list_names([file.name for file in unseen], _SHOWN_FILES),
            extra=fields("generation_begun", generation=generation.number, **_counts(one.generation)),
        )
        return KnownInput(known.first, (*known.added, one))

    def _settling(self) -> AbstractContextManager[object]:
        """What keeps other tasks from settling a generation at the same time; a whole run is alone."""
        if self.context.options.task is None:
            return nullcontext()
        return wait_for_lock(self._paths.plan_lock, lock_holder(), self.context.stop.check)

    def _unseen(self, known: KnownInput) -> list[FoundFile]:
        names = _names(*known.parts)
        return [file for file in self.found if file.name not in names]

    def _are_there(self, shards: Sequence[Shard]) -> bool:
        return all(self._paths.shard(shard.index).exists() for shard in shards)

    def _read_added(self, first: InputSet) -> tuple[AddedFiles, ...]:
        added, damaged = read_added(self._paths, first)
        if damaged is not None:
            logger.warning("%s: is damaged, or of another run: the files in it count as new", damaged)
        return added

    def _checked(self, known: KnownInput) -> KnownInput:
        """Hold every file against what is there now, and keep places and times that are others."""
        found, known_names = self.found, _names(*known.parts)
        if not known_names <= {file.name for file in found}:
            # Another task may have taken in a file that came after this process looked.
            found = find_files(self.spec, exclude=[self._paths.output])
        if self.context.options.new_files:
            found = [file for file in found if file.name in known_names]
        names_later = _names(*(one.inputs for one in known.added))
        first = self._unchanged(known.first, [file for file in found if file.name not in names_later])
        added = []
        for one in known.added:
            names = _names(one.inputs)
            now = self._unchanged(one.inputs, [file for file in found if file.name in names])
            if now != one.inputs:
                write_generation(self._paths, AddedFiles(one.generation, now))
            added.append(AddedFiles(one.generation, now))
        return KnownInput(first, tuple(added))

    def _unchanged(self, frozen: InputSet, found: Sequence[FoundFile]) -> InputSet:
        return check_unchanged(frozen, found, lambda _: self.context.stop.check())

    def _freeze_again(self, begun: RunRecord) -> InputSet:
        logger.warning("%s: is missing or damaged: reading the input again", self._paths.inputs)
        inputs = self.freeze_first()
        if inputs.digest != begun.input_digest:
            away = ", new files out of the way for this one run" if self.context.options.new_files else ""
            raise InputError(
                f"the input is not what it was when this run began ({inputs.num_rows:,} rows now, {begun.num_rows:,} "
                f"then): put it back as it was{away}, use another output.path, or begin anew with --restart"
            )
        return inputs

    def _freeze(self, found: Sequence[FoundFile], known: InputSet | None) -> InputSet:
        from batchzs.inputs.freeze import freeze_inputs

        inputs = freeze_inputs(self.spec, found, on_progress=lambda _: self.context.stop.check(), known=known)
        num_bad = sum(file.num_bad_rows for file in inputs.files)
        logger.info(
            "input: %s, %s, %d of them damaged",
            counted(len(inputs.files), "file" if known is None else "new file"),
            counted(inputs.num_rows, "row"),
            num_bad,
            extra=fields("input_frozen", files=len(inputs.files), rows=inputs.num_rows, bad_rows=num_bad),
        )
        return inputs


def remove_end(paths: RunPaths) -> None:
    """Remove what says that the run is finished.

    Raises:
        MachineError: it cannot be removed.
    """
    for path in (paths.success, paths.summary):
        remove(path)


def _names(*inputs: InputSet) -> set[str]:
    return {file.found.name for one in inputs for file in one.files}


def _counts(generation: Generation) -> dict[str, int]:
    return {"files": generation.num_files, "rows": generation.num_rows, "shards": generation.num_shards}
