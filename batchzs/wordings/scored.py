"""Wordings of a job's labels: the same texts scored with other templates or other labels, to see which does better.

A wording is a template with the labels put into it. Each template that is given makes one; without any there is the
job's own. Labels that are given replace the job's in all of them. One loaded model serves them all, since nothing but
the hypotheses changes. How scores are shown is for `bars`, what they are worth for `truth`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from batchzs.classifier import Classifier
from batchzs.errors import UsageError
from batchzs.inputs.rows import OK
from batchzs.job_sections import Label
from batchzs.labels import checked_labels, fill_template, template_fault
from batchzs.located import Located, Place, quoted
from batchzs.scoring import reaches

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from batchzs.inputs.rows import ShardRows
    from batchzs.job import JobConfig

#: Stands for the template where every label has a hypothesis of its own.
NO_TEMPLATE = "(each label's own hypothesis)"


@dataclass(frozen=True, slots=True)
class Wording:
    """One way to ask for the labels."""

    template: str  # or NO_TEMPLATE
    job: JobConfig  # whose scores are all kept, and whose columns have no prefix

    @property
    def names(self) -> tuple[str, ...]:
        """The labels' names, in the job's order."""
        return tuple(label.name for label in self.job.labels)


@dataclass(frozen=True, slots=True)
class Scored:
    """What one wording makes of some texts."""

    wording: Wording
    frame: pl.DataFrame  # as `Classifier.score` gives it, a row a text
    scores: np.ndarray  # (texts, labels) float32 in the job's label order; NaN where the text is not scored
    chosen: np.ndarray  # (texts, labels) bool: the label that a run would give, or the labels with multi_label


def wordings_of(job: JobConfig, templates: Sequence[str], labels: Sequence[str]) -> tuple[Wording, ...]:
    """Put the wordings together.

    Args:
        job: the job.
        templates: one wording each; none: the job's own template.
        labels: `NAME` or `NAME=HYPOTHESIS` each, in place of the job's; none: the job's. A label with a hypothesis of
            its own keeps it under every template.

    Raises:
        UsageError: a template or a label is no good, or two wordings come to the same.
    """
    for template in templates:
        fault = template_fault(template)
        if fault is not None:
            raise UsageError(f"--template: {fault}")
    given = [_named(label) for label in labels] or [
        (label.name, None if label.hypothesis == fill_template(job.template, label.name) else label.hypothesis)
        for label in job.labels
    ]
    wordings = [_wording(job, template, given, is_given=bool(labels)) for template in templates or [job.template]]
    for number, wording in enumerate(wordings):
        twin = next((one for one in wordings[:number] if one.job.labels == wording.job.labels), None)
        if twin is not None and twin.job.template == wording.job.template:
            raise UsageError(f"--template {quoted(wording.job.template)}: is given twice; once is enough")
        if twin is not None:
            raise UsageError(
                f"--template {quoted(wording.job.template)}: comes to the same hypotheses as "
                f"{quoted(twin.job.template)}, because every label has one of its own; leave it out, or give "
                "the labels with --label"
            )
    return tuple(wordings)


def _named(label: str) -> tuple[str, str | None]:
    name, equals, hypothesis = label.partition("=")
    return name, hypothesis if equals else None


def _wording(job: JobConfig, template: str, given: Sequence[tuple[str, str | None]], *, is_given: bool) -> Wording:
    entries = [{"name": name} if own is None else {"name": name, "hypothesis": own} for name, own in given]
    located = Located({"labels": entries}, {(): Place("--label" if is_given else "--template", Path())})
    checked = checked_labels(located, template)
    located.raise_problems()
    update = {
        "labels": tuple(Label(name=name, hypothesis=hypothesis) for name, hypothesis in checked or ()),
        "template": template,
        "output": job.output.model_copy(update={"scores": "all", "logits": False, "prefix": ""}),
    }
    is_used = any(own is None for _, own in given)
    return Wording(template if is_used else NO_TEMPLATE, job.model_copy(update=update))


def score_wordings(wordings: Sequence[Wording], rows: ShardRows, *, offline: bool) -> list[Scored]:
    """Score texts in every wording, with one loaded model.

    Args:
        wordings: of one job.
        rows: the texts; those that a reader gave another status than `ok` are not scored.
        offline: forbid any connection.

    Raises:
        BatchzsError: as `Classifier` raises them.
    """
    readable = [text if status == OK else None for text, status in zip(rows.texts, rows.statuses, strict=True)]
    with Classifier(wordings[0].job, offline=offline) as first:
        classifiers = [first, *(first.with_job(wording.job) for wording in wordings[1:])]
        return [
            _scored(wording, classifier.score(readable))
            for wording, classifier in zip(wordings, classifiers, strict=True)
        ]


def _scored(wording: Wording, frame: pl.DataFrame) -> Scored:
    names = wording.names
    none = [float("nan")] * len(names)
    rows = [none if row is None else row for row in frame["scores"].to_list()]
    scores = np.array(rows, dtype=np.float32).reshape(len(rows), len(names))
    threshold = wording.job.resolved_threshold
    if wording.job.multi_label and threshold is not None:
        chosen = reaches(scores, threshold)
    else:
        chosen = np.array([[name == label for name in names] for label in frame["label"].to_list()], dtype=bool)
    return Scored(wording, frame, scores, chosen.reshape(scores.shape))
