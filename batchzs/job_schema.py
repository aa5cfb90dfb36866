"""The job file's JSON Schema, by which editors complete and check it while it is written.

Made from `job`'s own schema, so that neither knows a key that the other does not. It says what may stand in the file,
where one column may be a text and labels may be names; what depends on several keys at once only `load_job` knows.
A key's description, which editors show beside it, says what the key means and what may stand there.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from batchzs.job import JobConfig
from batchzs.job_keys import all_keys, key_of, section_of

#: Keys for which one text stands for a list of one.
_ONE_OR_MORE = ("path", "text")
#: Sections that may be empty: a key whose own keys are all commented out reads as null.
_SECTIONS = ("input", "model", "output", "engine")


def job_json_schema() -> dict[str, Any]:
    """The schema, of the 2020-12 draft.

    >>> sorted(job_json_schema()["properties"])
    ['engine', 'input', 'labels', 'model', 'multi_label', 'output', 'template', 'threshold']
    """
    schema = JobConfig.model_json_schema()
    definitions = schema["$defs"]
    _describe(schema)
    for key in _ONE_OR_MORE:
        many = definitions["InputConfig"]["properties"][key]
        one = deepcopy(many["items"])
        definitions["InputConfig"]["properties"][key] = {
            "description": many["description"],
            "anyOf": [one, {"type": "array", "items": one, "minItems": 1}],
        }
    definitions["Label"]["required"] = ["name"]  # without a hypothesis of its own a label takes the template
    labels = schema["properties"]["labels"]
    label = {"anyOf": [{"type": "string", "minLength": 1}, labels["items"]]}
    schema["properties"]["labels"] = {
        "description": labels["description"],
        "anyOf": [{"type": "array", "items": label, "minItems": 1}, {"type": "string", "minLength": 1}],
    }
    for key in _SECTIONS:
        section = schema["properties"][key]
        schema["properties"][key] = {
            "description": definitions[section["$ref"].rpartition("/")[2]]["description"],
            "anyOf": [section, {"type": "null"}],
        }
    csv = definitions["InputConfig"]["properties"]["csv"]
    definitions["InputConfig"]["properties"]["csv"] = {
        "description": csv["description"],
        "anyOf": [{"$ref": csv["$ref"]}, {"type": "null"}],
    }
    _drop_titles(schema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A job of batchzs",
        "description": "What `batchzs run` reads: texts, labels, a model, an output.",
        **{key: value for key, value in schema.items() if key not in {"title", "description"}},
    }


def _describe(schema: dict[str, Any]) -> None:
    """Put what each key means before what is expected there, which is all that messages need."""
    sections: dict[tuple[str | int, ...], str] = {}
    for path, field in all_keys(JobConfig):
        above = sections.get(path[:-1])
        properties = (schema["$defs"][above] if above is not None else schema)["properties"]
        section = section_of(field)
        if section is not None:
            sections[path] = section.__name__
        key = key_of(field)
        if key is not None:
            expected = "" if field.description is None else f"\n\nExpected: {field.description}"
            properties[path[-1]]["description"] = key.meaning + expected


def _drop_titles(value: Any) -> None:
    """Leave out the titles that pydantic makes of the keys' names: editors show the keys anyway."""
    if isinstance(value, dict):
        if isinstance(value.get("title"), str):
            del value["title"]
        for each in value.values():
            _drop_titles(each)
    elif isinstance(value, list):
        for each in value:
            _drop_titles(each)
