"""Every error that batchzs raises on purpose, and the exit code that each one ends the command with.

BatchzsError                     1  a fault of ours
├── UsageError                   2  the command line or the job file is wrong
├── InputError                   3  the input is missing, unreadable, or changed
├── ModelError                   4  the model is missing, incomplete, or not what the job says
├── TooManyBadRowsError          5  done, but more rows were quarantined than allowed
├── OtherJobError                6  this output was begun by another job
├── LockedError                  7  another run holds this output
├── MachineError                 8  disk, permissions, device, or memory is in the way
│   └── DeviceError              8  one device is in the way, and another one may do
├── DifferenceError              9  a check found a difference, or something missing
└── InterruptedRunError         75  stopped on request; the same command continues
    └── TimeLimitError          75  stopped before a time limit, likewise

The library raises these; only `cli` turns them into an exit code and a line on standard error. A message says which
file, line, key or row, what was found, what was expected, and what to do. It never holds a text of the input, because
messages end in logs.
"""

from typing import ClassVar


class BatchzsError(Exception):
    """The root of the tree: raised as it is only where batchzs itself is at fault.

    Args:
        message: for people.
        key: the job's key that is to be looked at, such as `input.text`; commands on a job add where it is written.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str = "", *, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


class UsageError(BatchzsError):
    """The command line or the job file is wrong."""

    exit_code = 2


class InputError(BatchzsError):
    """The input is missing, unreadable, or not what it was when the run began."""

    exit_code = 3


class ModelError(BatchzsError):
    """The model is missing, incomplete, or not what the job says."""

    exit_code = 4


class TooManyBadRowsError(BatchzsError):
    """Every row is in the output, but more were quarantined than `input.max_bad_share` allows."""

    exit_code = 5


class OtherJobError(BatchzsError):
    """The output directory holds results of a job that would score, lay out or decide differently."""

    exit_code = 6


class LockedError(BatchzsError):
    """Another run holds this output at this moment."""

    exit_code = 7


class MachineError(BatchzsError):
    """The machine is in the way: disk, permissions, device, or memory at the floor."""

    exit_code = 8


class DeviceError(MachineError):
    """One device is in the way: its memory at the floor, or its numbers none. Another device may do."""


class DifferenceError(BatchzsError):
    """A check of results found a difference, or that some are missing."""

    exit_code = 9


class InterruptedRunError(BatchzsError):
    """The run stopped on request; the same command continues it."""

    exit_code = 75


class TimeLimitError(InterruptedRunError):
    """The run stopped because its time is nearly up: its deadline, or SIGUSR1, which schedulers send before a limit.

    Args:
        message: for people.
        obstacle: why running the same command again by itself would lead nowhere; None where it goes on.
    """

    def __init__(self, message: str, obstacle: str | None = None) -> None:
        super().__init__(message)
        self.obstacle = obstacle
