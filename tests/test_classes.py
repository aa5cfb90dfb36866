"""Which class is entailment: stated, named, or StructBERT's; never guessed (case Z4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchzs.errors import ModelError
from batchzs.models.classes import ClassIndices, StatedIndices, refuse_unsettled_classes, resolve_classes
from tests.builders import PATIENT

NOTHING = StatedIndices(None, None)
ANONYMOUS = {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}


def resolve(
    id2label: dict[int, str],
    *,
    structbert: bool = False,
    num_classes: int = 3,
    stated: tuple[int | None, int | None] = (None, None),
) -> ClassIndices:
    """Settle the classes of a checkpoint."""
    return resolve_classes(
        is_structbert=structbert, id2label=id2label, num_classes=num_classes, stated=StatedIndices(*stated)
    )


@pytest.mark.parametrize("id2label", [{}, ANONYMOUS, {0: "entailment", 1: "neutral", 2: "contradiction"}])
def test_structbert_has_entailment_at_0_and_contradiction_at_2(id2label: dict[int, str]) -> None:
    """ModelScope's own pipeline reads these checkpoints so; names that say nothing or the same do not matter."""
    assert resolve(id2label, structbert=True) == ClassIndices(entailment=0, contradiction=2, neutral=1)


@pytest.mark.parametrize(
    ("id2label", "expected"),
    [
        ({0: "contradiction", 1: "neutral", 2: "entailment"}, ClassIndices(2, 0, 1)),
        ({0: "ENTAILMENT", 1: "Neutral", 2: "Contradiction"}, ClassIndices(0, 2, 1)),
        ({0: "中立", 1: "蕴含", 2: "矛盾"}, ClassIndices(1, 2, 0)),
        ({0: "矛盾", 1: "中立", 2: "蕴涵"}, ClassIndices(2, 0, 1)),
        ({0: " entailment ", 1: "contradiction", 2: "neutral"}, ClassIndices(0, 1, 2)),
    ],
)
def test_other_checkpoints_say_it_by_their_names(id2label: dict[int, str], expected: ClassIndices) -> None:
    """Names count in any case, with spaces around, in English or Chinese, in any order."""
    assert resolve(id2label) == expected


@pytest.mark.parametrize("id2label", [{}, ANONYMOUS, {0: "entailment", 1: "LABEL_1", 2: "LABEL_2"}])
def test_a_checkpoint_that_does_not_say_it_is_refused(id2label: dict[int, str]) -> None:
    """The last class is no default: the job has to state both, and the message says how and shows the names."""
    with pytest.raises(ModelError, match=r"state model\.entailment_id and model\.contradiction_id") as caught:
        resolve(id2label)
    assert (", ".join(f"{index}: {name}" for index, name in id2label.items()) or "none") in str(caught.value)


def test_not_entailment_is_not_entailment() -> None:
    """Names are compared whole: a head of (not_entailment, entailment) has entailment at 1."""
    names = {0: "not_entailment", 1: "entailment"}
    assert resolve(names, num_classes=2) == ClassIndices(entailment=1, contradiction=0, neutral=None)
    with pytest.raises(ModelError, match="does not say which class"):
        resolve({0: "not_entailment", 1: "neutral", 2: "contradiction"})


def test_two_class_head_uses_its_other_class_as_contradiction() -> None:
    """A stated or named entailment is enough with two classes, and there is no neutral one."""
    assert resolve({}, num_classes=2, stated=(0, None)) == ClassIndices(0, 1, None)
    assert resolve({0: "蕴含", 1: "其他"}, num_classes=2) == ClassIndices(0, 1, None)


def test_two_class_structbert_has_no_usual_indices() -> None:
    """0 and 2 hold for the three-class zero-shot checkpoints alone."""
    with pytest.raises(ModelError, match="does not say which class"):
        resolve({}, structbert=True, num_classes=2)
    assert resolve({}, structbert=True, num_classes=2, stated=(1, 0)) == ClassIndices(1, 0, None)


@pytest.mark.parametrize(
    "id2label",
    [
        {0: "contradiction", 1: "neutral", 2: "entailment"},
        {0: "neutral", 1: "entailment", 2: "contradiction"},
        {0: "entailment", 1: "contradiction", 2: "neutral"},
    ],
)
def test_structbert_whose_names_contradict_its_usual_indices_is_refused(id2label: dict[int, str]) -> None:
    """ModelScope never looks at the names, so either reading may be the wrong one: the job decides."""
    with pytest.raises(ModelError, match=r"state model\.entailment_id and model\.contradiction_id in the job"):
        resolve(id2label, structbert=True)


def test_the_jobs_statement_wins_over_names_and_over_structberts_usual() -> None:
    """Where the job states both indices nothing else is asked."""
    names = {0: "contradiction", 1: "neutral", 2: "entailment"}
    for structbert in (False, True):
        assert resolve(names, structbert=structbert, stated=(2, 0)) == ClassIndices(2, 0, 1)
        assert resolve(names, structbert=structbert, stated=(0, 1)) == ClassIndices(0, 1, 2)


def test_stating_one_index_that_contradicts_the_names_is_refused_for_structbert_too() -> None:
    """Half a statement does not silence the other half's contradiction: the names have contradiction at 0, not 2."""
    names = {0: "contradiction", 1: "entailment", 2: "neutral"}
    with pytest.raises(ModelError):
        resolve(names, structbert=True, stated=(1, None))


def test_one_stated_index_is_completed_by_the_names() -> None:
    """Each index comes from the job where it states it, and from the names otherwise."""
    names = {0: "contradiction", 1: "neutral", 2: "蕴含关系"}
    assert resolve(names, stated=(2, None)) == ClassIndices(2, 0, 1)


@pytest.mark.parametrize(("stated", "key"), [((3, 0), "entailment_id"), ((0, 7), "contradiction_id")])
def test_an_index_outside_the_head_is_refused(stated: tuple[int, int], key: str) -> None:
    """The message names the job's key, its value and the classes that there are."""
    with pytest.raises(ModelError, match=rf"model\.{key} is {max(stated)}, but the checkpoint has classes 0 to 2"):
        resolve(ANONYMOUS, stated=stated)


@pytest.mark.parametrize("num_classes", [1, 4, 15])
def test_a_head_that_is_none_of_inference_is_refused(num_classes: int) -> None:
    """A topic classifier of fifteen classes is not scored as if it judged pairs."""
    with pytest.raises(ModelError, match=rf"has {num_classes} classes, expected 3 .* or 2"):
        resolve({0: "entailment", 1: "contradiction"}, num_classes=num_classes)


def test_two_classes_of_one_name_are_refused() -> None:
    """Entailment in English and in Chinese at once: which one it is nobody can tell."""
    with pytest.raises(ModelError, match="names 2 classes as entailment"):
        resolve({0: "entailment", 1: "contradiction", 2: "蕴含"})


def test_stated_indices_beat_ambiguous_names() -> None:
    """The message for two classes of one name asks for a statement; it is then heard."""
    assert resolve({0: "entailment", 1: "矛盾", 2: "蕴含"}, stated=(2, 1)) == ClassIndices(2, 1, 0)


def test_entailment_and_contradiction_must_differ() -> None:
    """One class cannot be both, not even where only one of the two was stated."""
    with pytest.raises(ModelError, match="both class 2"):
        resolve(ANONYMOUS, structbert=True, stated=(2, None))


@PATIENT
@given(
    names=st.dictionaries(
        st.integers(0, 3), st.sampled_from(["entailment", "contradiction", "蕴含", "neutral", "x"]), max_size=4
    ),
    num_classes=st.sampled_from([2, 3]),
    structbert=st.booleans(),
    stated=st.tuples(st.none() | st.integers(0, 3), st.none() | st.integers(0, 3)),
)
def test_what_is_settled_is_always_sound(
    names: dict[int, str],
    num_classes: int,
    structbert: bool,  # noqa: FBT001 - drawn
    stated: tuple[int | None, int | None],
) -> None:
    """Either a refusal or different indices within the head, each the stated one where there is one."""
    try:
        classes = resolve(names, structbert=structbert, num_classes=num_classes, stated=stated)
    except ModelError:
        return
    indices = [index for index in (classes.entailment, classes.neutral, classes.contradiction) if index is not None]
    assert sorted(indices) == list(range(num_classes))
    for wanted, settled in zip(stated, (classes.entailment, classes.contradiction), strict=True):
        assert wanted is None or wanted == settled


@pytest.mark.parametrize(
    ("is_structbert", "id2label", "stated"),
    [
        (True, {}, StatedIndices(None, None)),
        (False, {0: "entailment", 1: "not_entailment"}, StatedIndices(None, None)),
        (False, {0: "contradiction", 1: "neutral", 2: "entailment"}, StatedIndices(None, None)),
        (False, {}, StatedIndices(0, 2)),
    ],
)
def test_classes_that_some_head_settles_pass_before_the_weights_are_known(
    *, is_structbert: bool, id2label: dict[int, str], stated: StatedIndices
) -> None:
    """A two-class head settles what a three-class one would not, and the weights will say which it is."""
    refuse_unsettled_classes(is_structbert=is_structbert, id2label=id2label, stated=stated)


@pytest.mark.parametrize("id2label", [{}, {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}])
def test_classes_that_no_head_settles_are_refused_before_the_weights_are_known(id2label: dict[int, str]) -> None:
    """Neither names nor indices: reading the input and the weights first would be wasted."""
    with pytest.raises(ModelError, match=r"state model\.entailment_id and model\.contradiction_id"):
        refuse_unsettled_classes(is_structbert=False, id2label=id2label, stated=StatedIndices(None, None))
