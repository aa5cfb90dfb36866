"""Which of a checkpoint's classes is entailment, which contradiction, which neutral.

A wrong index inverts every answer, so nothing is guessed: StructBERT's zero-shot checkpoints have entailment at 0 and
contradiction at 2 by ModelScope's own pipeline, other checkpoints say it by their class names, and otherwise the job
must. Names are compared whole and without regard to case: "not_entailment" is not entailment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from batchzs.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAMES: Mapping[str, frozenset[str]] = {
    "entailment": frozenset({"entailment", "entail", "蕴含", "蕴涵"}),
    "contradiction": frozenset({"contradiction", "contradict", "矛盾"}),
}
#: A three-class StructBERT head, as ModelScope's zero-shot pipeline reads it.
STRUCTBERT_ENTAILMENT_ID = 0
STRUCTBERT_CONTRADICTION_ID = 2


@dataclass(frozen=True, slots=True)
class ClassIndices:
    """Class indices into the last axis of the logits; a two-class head has no neutral class."""

    entailment: int
    contradiction: int
    neutral: int | None


@dataclass(frozen=True, slots=True)
class StatedIndices:
    """What the job says of the classes: `model.entailment_id` and `model.contradiction_id`, null where it does not."""

    entailment: int | None
    contradiction: int | None


def resolve_classes(
    *, is_structbert: bool, id2label: Mapping[int, str], num_classes: int, stated: StatedIndices
) -> ClassIndices:
    """Settle the class indices from the job, the kind of checkpoint and its class names, in this order.

    Args:
        is_structbert: whether the checkpoint says `model_type: structbert`.
        id2label: class names from the checkpoint's config, empty where it has none.
        num_classes: rows of the classifier's weight, 2 or 3.
        stated: what the job states.

    Returns:
        The indices, each within the head, entailment and contradiction different.

    Raises:
        ModelError: nothing says which class is entailment, or what is said contradicts itself.

    >>> resolve_classes(is_structbert=False, id2label={0: "Contradiction", 1: "Entailment"}, num_classes=2,
    ...                 stated=StatedIndices(None, None))
    ClassIndices(entailment=1, contradiction=0, neutral=None)
    """
    if num_classes not in (2, 3):
        raise ModelError(
            f"the checkpoint's classifier has {num_classes} classes, expected 3 (entailment, neutral, contradiction) "
            "or 2: use a checkpoint trained for natural language inference"
        )
    usual = (
        (STRUCTBERT_ENTAILMENT_ID, STRUCTBERT_CONTRADICTION_ID) if is_structbert and num_classes == 3 else (None, None)
    )
    entailment = _settle(stated.entailment, usual[0], "entailment", id2label)
    contradiction = _settle(stated.contradiction, usual[1], "contradiction", id2label)
    if entailment is not None and contradiction is None and num_classes == 2:
        contradiction = 1 - entailment
    if entailment is None or contradiction is None:
        names = ", ".join(f"{index}: {name}" for index, name in sorted(id2label.items())) or "none"
        raise ModelError(
            "the checkpoint does not say which class is entailment and which contradiction "
            f"(class names in config.json: {names}): state model.entailment_id and model.contradiction_id in the job",
            key="model",
        )
    for key, index in (("entailment_id", entailment), ("contradiction_id", contradiction)):
        if not 0 <= index < num_classes:
            raise ModelError(
                f"model.{key} is {index}, but the checkpoint has classes 0 to {num_classes - 1}", key=f"model.{key}"
            )
    if entailment == contradiction:
        raise ModelError(f"entailment and contradiction are both class {entailment}: they must differ")
    neutral = 3 - entailment - contradiction if num_classes == 3 else None
    return ClassIndices(entailment, contradiction, neutral)


def refuse_unsettled_classes(*, is_structbert: bool, id2label: Mapping[int, str], stated: StatedIndices) -> None:
    """Do nothing where the classes could be settled for a head of three classes or of two.

    What the configuration and the job say is known before the weights are, and so is what neither says.

    Raises:
        ModelError: no head could be read.
    """
    errors = []
    for num_classes in (3, 2):
        try:
            resolve_classes(is_structbert=is_structbert, id2label=id2label, num_classes=num_classes, stated=stated)
        except ModelError as exc:
            errors.append(exc)
    if len(errors) == 2:
        raise errors[0]


def _settle(stated: int | None, usual: int | None, meaning: str, id2label: Mapping[int, str]) -> int | None:
    """One index: the stated one; else the usual one, unless the names contradict it; else the named one."""
    if stated is not None:
        return stated
    found = [index for index, name in id2label.items() if name.strip().lower() in _NAMES[meaning]]
    if len(found) > 1:
        raise ModelError(
            f"config.json names {len(found)} classes as {meaning} ({found}): state model.{meaning}_id in the job",
            key="model",
        )
    named = found[0] if found else None
    if usual is not None and named is not None and named != usual:
        raise ModelError(
            f"config.json names class {named} as {meaning}, but StructBERT's zero-shot checkpoints have it at {usual}: "
            "state model.entailment_id and model.contradiction_id in the job to say which holds",
            key="model",
        )
    return named if usual is None else usual
