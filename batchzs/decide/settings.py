"""What `batchzs decide` is asked for, made into the job that a run with those settings would have had.

Labels are merged first and chosen afterwards. A label's name may hold commas, so a list of names is cut only where
every piece is a name; names that could be cut in two ways are refused.

Looks at the output's record alone: no shard is opened here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from batchzs.decide.decisions import NewLabels
from batchzs.errors import UsageError
from batchzs.job import JobConfig
from batchzs.located import quoted
from batchzs.records import OtherLabel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from batchzs.finished import FinishedRun

_CHINESE_COMMAS = "，、；"
#: What stands between the hypotheses of a merged label's members where one hypothesis is shown.
_OR = " | "


@dataclass(frozen=True, slots=True)
class DecideOptions:
    """What the command line asks for; what is None or empty stays as the run had it."""

    threshold: str | None = None  # a number, or "none"
    multi_label: bool | None = None
    labels: tuple[str, ...] = ()
    merge: tuple[str, ...] = ()
    other: str | None = None
    other_below: float | None = None
    other_margin: float | None = None
    priors: str | None = None  # batch or content-free
    priors_from: Path | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """The new labels, as a job and as what makes their scores."""

    job: JobConfig
    labels: NewLabels  # without priors, which are not known yet
    merge: dict[str, tuple[str, ...]]
    other: OtherLabel | None


def settle(run: FinishedRun, options: DecideOptions, output: Path) -> Settings:
    """Make the new job.

    Args:
        run: the output with the logits.
        options: what is asked for.
        output: where the new output will lie.

    Raises:
        UsageError: something asked for makes no sense for this output.
    """
    names = [label.name for label in run.job.labels]
    merge = parse_merges(options.merge, names)
    groups = choose(merged_groups(merge, names), options.labels)
    unused = [name for name in merge if name not in groups]
    if unused:
        raise UsageError(f"--merge: {quoted(unused[0])} is not among --labels: name it there too, or leave it out")
    hypotheses = {label.name: label.hypothesis for label in run.job.labels}
    labels = [
        {"name": name, "hypothesis": _OR.join(hypotheses[member] for member in members)}
        for name, members in groups.items()
    ]
    multi_label = run.job.multi_label if options.multi_label is None else options.multi_label
    threshold = run.job.threshold if options.threshold is None else parse_threshold(options.threshold)
    content: dict[str, Any] = run.job.model_dump(mode="json")
    content |= {"labels": labels, "multi_label": multi_label, "threshold": threshold}
    content["output"]["path"] = str(output)
    if options.priors is not None or any(len(members) > 1 for members in groups.values()):
        # These scores follow from several labels' logits, or from more than logits.
        content["output"]["logits"] = False
    job = JobConfig.model_validate_json(json.dumps(content))  # as run.json is read
    index = {name: place for place, name in enumerate(names)}
    members = tuple(tuple(index[member] for member in group) for group in groups.values())
    _check_priors(options, job)
    return Settings(job, NewLabels(members, job.scored_as_multi_label), merge, _other(options, job))


def parse_threshold(text: str) -> float | None:
    """Read a threshold.

    Raises:
        UsageError: it is neither a share nor `none`.

    >>> parse_threshold("0.8"), parse_threshold("none")
    (0.8, None)
    """
    if text.strip().lower() == "none":
        return None
    try:
        threshold = float(text)
    except ValueError:
        threshold = -1.0
    if not 0 <= threshold <= 1:
        raise UsageError(f"--threshold: found {quoted(text)}, expected a number from 0 to 1, or none")
    return threshold


def parse_merges(given: Sequence[str], names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Read NAME=MEMBER,MEMBER.

    Args:
        given: as on the command line.
        names: the labels there are.

    Raises:
        UsageError: one is not of this form, or the labels do not go together.

    >>> parse_merges(["财经=股票,基金"], ["体育", "股票", "基金"])
    {'财经': ('股票', '基金')}
    """
    merges: dict[str, tuple[str, ...]] = {}
    taken: dict[str, str] = {}
    for text in given:
        name, sign, listed = text.partition("=")
        name = name.strip()
        if not sign or not name:
            raise UsageError(f"--merge: found {quoted(text)}, expected NAME=LABEL,LABEL, such as 财经=股票,基金")
        members = cut_names(listed, names, f"--merge {name}")
        for member in members:
            if member in taken:
                raise UsageError(f"--merge: {quoted(member)} is merged into {taken[member]} already; once is enough")
            taken[member] = name
        if name in merges:
            raise UsageError(f"--merge: {quoted(name)} is given twice; list all its labels in one")
        merges[name] = members
    for name, members in merges.items():
        if name in names and name not in members and name not in taken:
            raise UsageError(
                f"--merge: {quoted(name)} is a label of the run and not among what is merged into it; add it there "
                f"({name}={','.join((name, *members))}), or choose another name"
            )
    return merges


def merged_groups(merge: Mapping[str, tuple[str, ...]], names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Name every new label's members; a merged one stands where its first member stood.

    >>> merged_groups({"财经": ("基金", "股票")}, ["体育", "股票", "房产", "基金"])
    {'体育': ('体育',), '财经': ('基金', '股票'), '房产': ('房产',)}
    """
    into = {member: name for name, members in merge.items() for member in members}
    return {into.get(name, name): merge[into[name]] if name in into else (name,) for name in names}


def choose(groups: dict[str, tuple[str, ...]], given: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Take the labels that --labels names, in its order; all where it names none.

    Raises:
        UsageError: a name is none of theirs, or is given twice.
    """
    if not given:
        return groups
    chosen: dict[str, tuple[str, ...]] = {}
    for text in given:
        for name in cut_names(text, list(groups), "--labels"):
            if name in chosen:
                raise UsageError(f"--labels: {quoted(name)} is given twice; once is enough")
            chosen[name] = groups[name]
    return chosen


def cut_names(text: str, names: Sequence[str], option: str) -> tuple[str, ...]:
    """Cut a list of names at its commas, but not at those inside a name.

    Args:
        text: as on the command line.
        names: those there are.
        option: for messages.

    Raises:
        UsageError: a piece is none of the names, or the text can be read in two ways.

    >>> cut_names("体育,球赛,娱乐", ["娱乐", "体育,球赛"], "--labels")
    ('体育,球赛', '娱乐')
    """
    pieces = [piece.strip() for piece in text.split(",")]
    # readings[i]: the ways to read the first i pieces as names, two at most: more than one is refused anyway
    readings: list[list[tuple[str, ...]]] = [[()]]
    whole = {",".join(part.strip() for part in name.split(",")): name for name in names}
    for stop in range(1, len(pieces) + 1):
        found = [
            (*before, whole[name])
            for start in range(stop)
            if (name := ",".join(pieces[start:stop])) in whole
            for before in readings[start]
        ]
        readings.append(found[:2])
    if len(readings[-1]) == 1:
        return readings[-1][0]
    if readings[-1]:
        ways = " or ".join(" + ".join(map(quoted, reading)) for reading in readings[-1])
        raise UsageError(f"{option}: {quoted(text)} can be read as {ways}: give each in an option of its own")
    furthest = max(place for place, ways in enumerate(readings) if ways)
    unknown = ",".join(pieces[furthest : furthest + 1])
    hint = "; commas between names are ASCII commas" if any(sign in unknown for sign in _CHINESE_COMMAS) else ""
    raise UsageError(f"{option}: found {quoted(unknown)}, expected some of {', '.join(names)}{hint}")


def _other(options: DecideOptions, job: JobConfig) -> OtherLabel | None:
    below, margin = options.other_below, options.other_margin
    if options.other is None:
        if below is not None or margin is not None:
            given = "--other-below" if below is not None else "--other-margin"
            raise UsageError(f"{given} goes with --other NAME: what is the label called?")
        return None
    for name, share in (("--other-below", below), ("--other-margin", margin)):
        if share is not None and not 0 <= share <= 1:  # not a number, which click lets pass
            raise UsageError(f"{name}: found {share}, expected a number from 0 to 1")
    if not options.other.strip():
        raise UsageError("--other: found an empty name, expected a label such as 其他")
    if margin is not None and job.multi_label:
        raise UsageError(
            "--other-margin: in multi-label several labels may fit well, so two near each other say nothing; use "
            "--other-below"
        )
    if below is None and margin is None:
        below = job.resolved_threshold
        if below is None:
            raise UsageError("--other goes with --other-below X, --other-margin X or a threshold: when is it given?")
    return OtherLabel(name=options.other.strip(), below=below, margin=margin)


def _check_priors(options: DecideOptions, job: JobConfig) -> None:
    if options.priors_from is not None and options.priors != "content-free":
        raise UsageError("--priors-from goes with --priors content-free: an output over texts that say nothing")
    if options.priors == "content-free" and options.priors_from is None:
        raise UsageError(
            "--priors content-free goes with --priors-from OUTPUT: run the same job over a file of a few texts that "
            'say nothing ("N/A", "无", "。") into that output first'
        )
    if options.priors == "batch" and job.scored_as_multi_label:
        raise UsageError(
            "--priors batch: would have every label fit half of the texts where each is decided by itself "
            "(multi-label, or one label); use --priors content-free"
        )
