"""The scripts that Slurm is given: one for an array of tasks, one for the closing step after it. Pure text.

Who submits them, and which parts of a run are unfinished, is not decided here. What must be right in them:

- Slurm's signal before the time limit reaches the batch shell alone. So the shell becomes batchzs by `exec`; where a
  launcher stands between (a container, say, in which there is no Slurm), the shell stays, hands the signal on, and asks
  for the task to be queued again by itself. Without a launcher the run does so, told by BATCHZS_REQUEUE.
- A task is named as array and index. The id alone is, for the last task of an array to start, the whole array's id too,
  and asking for that one again would ask for all.
- Each task says which part of how many it does, so that an array of some indices does the same parts as one of all.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from batchzs.counted import counted
from batchzs.errors import UsageError
from batchzs.resume import describe_indices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchzs.paths import RunPaths

#: A run ends within 20 s of the signal, and Slurm may send it up to a minute early.
SIGNAL_LEAD_S = 120

_LAUNCHED = """\
# Inside the launcher there is no Slurm. USR1, which comes before the time limit, reaches this shell alone: it is handed
# on. TERM reaches every process of the job by itself, and means that the job is to end.
unset BATCHZS_REQUEUE
child= heard=0 cancelled=
trap 'heard=$((heard + 1)); [ -z "$child" ] || kill -USR1 "$child" 2> /dev/null' USR1
trap 'heard=$((heard + 1)); cancelled=yes' TERM
{command} &
child=$!
# A signal ends the waiting, not the run: then wait again.
while before=$heard; wait "$child"; code=$?; [ "$heard" != "$before" ]; do :; done
if [ "$code" = 75 ] && [ -z "$cancelled" ]; then
  echo "stopped with work left: asking Slurm to queue this task again" >&2
  scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"
fi
exit "$code"
"""


@dataclass(frozen=True, slots=True)
class SlurmOptions:
    """What is asked of Slurm."""

    num_tasks: int
    max_running: int | None = None
    num_gpus: int = 0
    extra: tuple[str, ...] = ()  # lines for #SBATCH, as they are
    finish_extra: tuple[str, ...] = ()  # likewise, for the closing step alone
    prolog: str = ""  # lines of shell before batchzs starts


@dataclass(frozen=True, slots=True)
class Program:
    """How batchzs is started, in the shell's words."""

    text: str
    launcher: str | None = None  # what stands before it, such as a container's command

    def command(self, *words: str, after: str = "") -> str:
        """Write a whole command: the program, words that are quoted, and a text that is not."""
        parts = (self.launcher, self.text, *(_quoted(word) for word in words), after)
        return " ".join(part for part in parts if part)


def array_script(
    options: SlurmOptions, paths: RunPaths, program: Program, run_words: Sequence[str], parts: Sequence[int]
) -> str:
    """Write the script of an array, a task for each of some parts.

    Args:
        options: what is asked of Slurm.
        paths: the output, which the logs lie in.
        program: how batchzs is started.
        run_words: the arguments of `batchzs run`: the absolute job, and options.
        parts: which parts to do, numbered from 1, in order; not none.

    Raises:
        UsageError: something in it cannot be written into a script.
    """
    running = f"%{options.max_running}" if options.max_running is not None else ""
    header = [
        f"--job-name={_value(_job_name(paths))}",
        f"--array={describe_indices(parts).replace(' ', '')}{running}",
        "--requeue",
        f"--signal=B:USR1@{SIGNAL_LEAD_S}",
        *_log_lines(paths, paths.slurm_log_name(options.num_tasks)),
        *((f"--gres=gpu:{options.num_gpus}",) if options.num_gpus else ()),
        *options.extra,
    ]
    command = program.command("run", *run_words, after=f'--task "$SLURM_ARRAY_TASK_ID/{options.num_tasks}"')
    if program.launcher is None:
        body = f"export BATCHZS_REQUEUE=1  # the run asks to be queued again where its time is up\nexec {command}\n"
    else:
        body = _LAUNCHED.format(command=command)
    return _script(header, options.prolog, body)


def finish_script(options: SlurmOptions, paths: RunPaths, program: Program, finish_words: Sequence[str]) -> str:
    """Write the script of the closing step, which looks whether everything is there and writes the end.

    Args:
        options: what is asked of Slurm; the closing step needs no GPU.
        paths: the output.
        program: how batchzs is started.
        finish_words: the arguments of `batchzs finish`.

    Raises:
        UsageError: something in it cannot be written into a script.
    """
    header = [
        f"--job-name={_value(_job_name(paths) + '-finish')}",
        *_log_lines(paths, paths.slurm_finish_log.name),
        *options.extra,
        *options.finish_extra,
    ]
    return _script(header, options.prolog, f"exec {program.command('finish', *finish_words)}\n")


def num_gpus(device: str, asked: int | None) -> int:
    """How many GPUs a task is to be given.

    Args:
        device: the job's `engine.device`.
        asked: what the user says; None: what the device calls for.

    Raises:
        UsageError: the two contradict each other, or the number is anybody's guess.

    >>> num_gpus("auto", None), num_gpus("cpu", None), num_gpus("cuda:1", 2)
    (1, 0, 2)
    """
    if device == "cpu":
        if asked:
            raise UsageError(f"--gpus: found {asked}, and engine.device: cpu uses none; change one of the two")
        return 0
    if device == "all" and asked is None:
        raise UsageError("engine.device: all uses every GPU that a task is given: say how many with --gpus")
    index = int(device.removeprefix("cuda:")) if device.startswith("cuda:") else 0
    number = 1 if asked is None else asked
    if device.startswith("cuda") and number <= index:
        raise UsageError(
            f"engine.device: found {device}, and a task is given {counted(number, 'GPU')}, numbered from 0 "
            "within the task: give --set engine.device=cuda, or more with --gpus"
        )
    return number


def checked_directive(text: str) -> str:
    """See that a text can stand behind #SBATCH.

    Raises:
        UsageError: it cannot, or would undo what makes the array a run's.

    >>> checked_directive("--partition=gpu")
    '--partition=gpu'
    """
    _refuse_unwritable("--sbatch", text)
    if not text.startswith("-"):
        raise UsageError(f"--sbatch: found {text!r}, expected an option of sbatch, such as --sbatch --partition=gpu")
    if re.search(r"(^|\s)(--arr|-a)", text):
        raise UsageError(f"--sbatch: found {text!r}: the array follows from --tasks and --max-running; leave it out")
    return text


def checked_prolog(text: str) -> str:
    """See that lines can stand before the program.

    Raises:
        UsageError: they hold #SBATCH lines, which Slurm would not see there.
    """
    if any(line.startswith("#SBATCH") for line in text.splitlines()):
        raise UsageError("--prolog: found a line with #SBATCH, which Slurm does not read there: use --sbatch for it")
    return text


def checked_words(option: str, text: str) -> str:
    """See that a text is words for the shell, on one line.

    Raises:
        UsageError: it is not.
    """
    _refuse_unwritable(option, text)
    try:
        words = shlex.split(text)
    except ValueError as exc:
        raise UsageError(f"{option}: found {text!r}, which the shell cannot read: {exc}") from exc
    if not words:
        raise UsageError(f"{option}: is empty; leave it out")
    return text


def _script(header: Sequence[str], prolog: str, body: str) -> str:
    lines = ["#!/bin/bash", *(f"#SBATCH {line}" for line in header), ""]
    if prolog.strip():
        lines += [prolog.rstrip("\n"), ""]
    return "\n".join(lines) + "\n" + body


def _job_name(paths: RunPaths) -> str:
    return f"batchzs-{paths.output.name}"


def _log_lines(paths: RunPaths, name: str) -> tuple[str, str]:
    """Where Slurm writes what a task prints; each attempt adds to it."""
    folder = str(paths.slurm)
    if "\\" in folder:
        raise UsageError(
            f"output.path: {paths.output} has a backslash, which Slurm takes for its own; use another name"
        )
    return (f"--output={_value(folder.replace('%', '%%') + '/' + name)}", "--open-mode=append")


def _value(text: str) -> str:
    r"""An option's value as sbatch reads it in a script: there, too, quotes enclose and a backslash escapes.

    >>> print(_value("out/news"), _value('a "b" #c'))
    out/news "a \"b\" #c"
    """
    _refuse_unwritable("output.path", text)
    if re.fullmatch(r"[A-Za-z0-9/._%+=,:@-]+", text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _quoted(word: str) -> str:
    _refuse_unwritable("the command", word)
    return shlex.quote(word)


def _refuse_unwritable(what: str, text: str) -> None:
    if re.search(r"[\n\r\0]", text):
        raise UsageError(f"{what}: found {text!r}, expected no line break: a line of a script cannot hold it")
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise UsageError(f"{what}: found {text!r}, expected names in UTF-8: a script cannot hold others") from exc
