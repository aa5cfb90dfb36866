"""What a run on all devices and its worker processes say to each other: a JSON object a line.

The run sends orders through a worker's standard input, the worker sends reports through a pipe of its own. The end of
the orders means that the run is gone, and the end of the reports that the worker is.
"""

import json
from datetime import datetime
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from batchzs.errors import BatchzsError
from batchzs.models.device import DeviceKind
from batchzs.records import ModelRecord, Resolved, ShardRecord


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TimeLimit(_Message):
    """When the run has to be over; see `batchzs.deadline`."""

    at: datetime
    source: str
    reserve_s: float


class Begin(_Message):
    """The first order: all that a worker has to know of the attempt, beside what the run's state holds."""

    kind: Literal["begin"] = "begin"
    number: int  # the worker's, from 1
    attempt: int
    job: dict[str, JsonValue]
    model: ModelRecord  # where it lies now
    resolved: Resolved  # as this attempt took it over
    threads: int  # this worker's share of the CPUs
    device: str
    device_kind: DeviceKind
    device_name: str
    time_limit: TimeLimit | None


class Score(_Message):
    """Score a shard; the answer to `Wanted`."""

    kind: Literal["score"] = "score"
    index: int


class Finish(_Message):
    """There is no more to score; the other answer to `Wanted`."""

    kind: Literal["finish"] = "finish"


class Stop(_Message):
    """Come to an end that can be gone on from."""

    kind: Literal["stop"] = "stop"


class Wanted(_Message):
    """The worker could read a shard now."""

    kind: Literal["wanted"] = "wanted"


class Advanced(_Message):
    """Work done since the last such report."""

    kind: Literal["advanced"] = "advanced"
    rows: float
    tokens: int


class Budgeted(_Message):
    """How many tokens a batch may have now, and how often memory has run out."""

    kind: Literal["budgeted"] = "budgeted"
    limit_tokens: int
    num_backoffs: int


class Published(_Message):
    """A shard has its name."""

    kind: Literal["published"] = "published"
    record: ShardRecord


class Logged(_Message):
    """A message for the run's log."""

    kind: Literal["logged"] = "logged"
    logger: str
    level: int
    created: float
    text: str
    has_lines: bool
    event: str | None
    fields: dict[str, JsonValue]


class Failed(_Message):
    """The worker ends now, for this reason."""

    kind: Literal["failed"] = "failed"
    error: str | None  # the class in `batchzs.errors`; None: an error that nobody foresaw
    text: str


Order = Begin | Score | Finish | Stop
Report = Wanted | Advanced | Budgeted | Published | Logged | Failed
_ORDERS: TypeAdapter[Order] = TypeAdapter(Annotated[Order, Field(discriminator="kind")])
_REPORTS: TypeAdapter[Report] = TypeAdapter(Annotated[Report, Field(discriminator="kind")])
_Any = TypeVar("_Any", Order, Report)


def encode(message: Order | Report) -> bytes:
    r"""Write a message as a line.

    >>> encode(Score(index=3))
    b'{"kind": "score", "index": 3}\n'
    """
    return json.dumps(message.model_dump(mode="json")).encode() + b"\n"


def decode_order(line: bytes) -> Order:
    r"""Read an order.

    Raises:
        BatchzsError: the line is none.

    >>> decode_order(b'{"kind": "score", "index": 3}\n')
    Score(kind='score', index=3)
    """
    return _decode(_ORDERS, line)


def decode_report(line: bytes) -> Report:
    """Read a report.

    Raises:
        BatchzsError: the line is none.
    """
    return _decode(_REPORTS, line)


def _decode(adapter: TypeAdapter[_Any], line: bytes) -> _Any:
    try:
        return adapter.validate_json(line)
    except ValidationError as exc:
        raise BatchzsError(f"a worker process and its run do not understand each other: {exc}") from exc
