"""Measure batchzs against what else scores pairs on a CPU, on the same texts in the same run.

    sh bench/make_peer_env.sh PEERS
    python -m bench.peers --peer-python PEERS/bin/python --modelscope-python ORACLE/bin/python --minutes 8

Run it from the repository's root with batchzs' own environment. ORACLE is an environment with ModelScope and
transformers 4, as tests/golden/make_golden.py describes. A contender whose environment is not given is left out, with
a note. Without other arguments it takes 9 labels, a BERT-base-size StructBERT with random weights, two sets of texts
(texts.py), fp32, and bf16 as well where the processor multiplies it in hardware.

Measured is texts in, scores out. Each contender is a process that loads once; its settings are those that were fastest
in a trial on a turn's texts (contenders.py), batchzs' too; `--settings-from` takes them from an earlier result. Then
batchzs and the peers take turns of a few seconds (matches.py) until `--minutes` are over, all of this run counted; at
least one round is played. A turn holds few texts, so the last batches of a turn, when not all CPUs have work, weigh
more than in a long run, for every contender that scores several batches at once: give `--turn-s 10` where time allows.

Prints a table and writes JSON, both with the machine, the versions, the settings and the command. Exits with 1 if a
contender's scores were not batchzs', or if it failed.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import logging
import os
import shlex
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from batchzs.models.checkpoint import read_checkpoint
from batchzs.models.device import cpu_has_bf16_units, granted_cpus
from batchzs.models.tokenizer import load_tokenizer
from batchzs.pairs import PairAssembler
from bench.peers.checkpoints import SIZES, make_checkpoint
from bench.peers.contenders import BATCHZS, PEERS, Contender
from bench.peers.linear import LinearLayers
from bench.peers.matches import Entry, Match, TextSet
from bench.peers.report import describe_machine, match_result, table
from bench.peers.serving import Question
from bench.peers.texts import TEMPLATE, TEXT_SETS, make_labels, make_texts
from bench.peers.workers import Worker, WorkerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from bench.peers.serving import Settings

logger = logging.getLogger(__name__)
_NUM_TEXTS = 3000  # of a set, from which turns are dealt


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, write; returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    started_s = time.monotonic()
    arguments = _parser().parse_args(argv)
    labels = make_labels(arguments.num_labels)
    machine = describe_machine()
    with ExitStack() as stack:
        work = arguments.work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-peers-")))
        folder = (work / f"{arguments.size}-{arguments.seed}").absolute()
        sizes = make_checkpoint(folder, arguments.size, arguments.seed)
        text_sets = [_make_text_set(name, folder, labels, arguments.seed) for name in arguments.texts]
        matches: list[Match] = []
        notes: list[str] = []
        for precision in arguments.precisions or (["fp32", "bf16"] if cpu_has_bf16_units() else ["fp32"]):
            question = Question(str(folder), labels, TEMPLATE, precision, granted_cpus(os.environ))
            layers = LinearLayers(sizes, precision, question.num_cpus)
            loaded = _load(arguments, question, work, stack, notes)
            for text_set in text_sets:
                batchzs, *peers = [Entry(contender, worker) for contender, worker in loaded]
                matches.append(Match(text_set, layers, batchzs, peers))
        for match in matches:
            match.prepare(arguments.turn_s, arguments.seed, _known_settings(arguments.settings_from, match.name))
        for number in _rounds(started_s + 60 * arguments.minutes):
            logger.info("round %d", number)
            for match in matches:
                match.play()
    results = {match.name: match_result(match) for match in matches}
    report = {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", "-m", "bench.peers", *(argv if argv is not None else sys.argv[1:])]),
        "machine": machine | {"load_at_the_end": [round(value, 2) for value in os.getloadavg()]},
        "checkpoint": {"size": arguments.size, "seed": arguments.seed, **sizes},
        "labels": labels,
        "template": TEMPLATE,
        "minutes": (time.monotonic() - started_s) / 60,
        "notes": notes,
        "matches": results,
    }
    arguments.json.write_text(json.dumps(report, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    _print_report(report)
    return int(any("failure" in row for result in results.values() for row in result["contenders"].values()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--peer-python", type=Path, help="Python of the environment that make_peer_env.sh built")
    parser.add_argument("--modelscope-python", type=Path, help="Python of an environment with ModelScope's pipeline")
    parser.add_argument("--minutes", type=float, default=8.0, help="rounds end in time for this (default: 8)")
    parser.add_argument("--turn-s", type=float, default=2.5, help="about how long batchzs' turns take (default: 2.5)")
    parser.add_argument("--num-labels", type=int, default=9)
    parser.add_argument("--texts", type=_names(TEXT_SETS), default=list(TEXT_SETS), help=", ".join(TEXT_SETS))
    parser.add_argument("--peers", type=_names(PEERS), default=list(PEERS), help=", ".join(PEERS))
    parser.add_argument("--precisions", type=_names(BATCHZS.precisions), help="fp32,bf16; default: as the CPU has them")
    parser.add_argument("--size", choices=SIZES, default="base", help="of the network; tiny tries the benchmark itself")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--settings-from", type=Path, help="an earlier result, whose settings are taken untried")
    parser.add_argument("--work", type=Path, help="keep the checkpoint, exported networks and logs in this folder")
    parser.add_argument("--json", type=Path, default=Path("peers.json"), help="the result (default: peers.json)")
    return parser


class _names:  # noqa: N801 - argparse names a type in its messages
    """Names separated by commas, each of them a known one."""

    def __init__(self, known: Iterable[str]) -> None:
        self._known = list(known)

    def __call__(self, text: str) -> list[str]:
        names = text.split(",")
        unknown = [name for name in names if name not in self._known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(self._known)}")
        return names


def _make_text_set(name: str, folder: Path, labels: Sequence[str], seed: int) -> TextSet:
    texts = make_texts(name, _NUM_TEXTS, seed)
    tokenizer = load_tokenizer(read_checkpoint(folder / "structbert"))
    hypotheses = tokenizer.encode([TEMPLATE.replace("{}", label) for label in labels])
    assembler = PairAssembler(tokenizer.encode(texts), hypotheses, tokenizer.layout, 512, "head")
    text_ids, label_ids = np.divmod(np.arange(len(texts) * len(labels)), len(labels))
    return TextSet(
        name, texts, assembler.pair_lengths(text_ids, label_ids).reshape(len(texts), -1).sum(axis=1), len(labels)
    )


def _load(
    arguments: argparse.Namespace, question: Question, work: Path, stack: ExitStack, notes: list[str]
) -> list[tuple[Contender, Worker]]:
    """Start batchzs and then every peer that can be started; a note says why another cannot.

    Raises:
        WorkerError: batchzs cannot be started.
    """
    loaded = []
    for contender in (BATCHZS, *(PEERS[name] for name in arguments.peers)):
        if question.precision not in contender.precisions:
            continue
        logger.info("loading %s in %s", contender.name, question.precision)
        try:
            loaded.append((contender, stack.enter_context(_start(contender, question, arguments, work))))
        except WorkerError as exc:
            if contender is BATCHZS:
                raise
            notes.append(f"{contender.name} in {question.precision} was left out: {exc}")
    return loaded


def _start(contender: Contender, question: Question, arguments: argparse.Namespace, work: Path) -> Worker:
    python = {
        "batchzs": Path(sys.executable),
        "peers": arguments.peer_python,
        "modelscope": arguments.modelscope_python,
    }[contender.environment]
    if python is None:
        option = {"peers": "--peer-python", "modelscope": "--modelscope-python"}[contender.environment]
        raise WorkerError(f"{option} was not given")
    # Not resolved: an environment's Python is a link, and where it lies says which environment it is.
    return Worker(python.absolute(), contender.module, question, work / f"{contender.module}-{question.precision}.log")


def _known_settings(path: Path | None, match_name: str) -> dict[str, Settings]:
    if path is None:
        return {}
    match = json.loads(path.read_bytes())["matches"].get(match_name, {"contenders": {}})
    return {name: row["settings"] for name, row in match["contenders"].items() if "failure" not in row}


def _rounds(end_s: float) -> Iterator[int]:
    """Count rounds from 1 for as long as one more, as long as the last one, would end in time."""
    number, begun_s = 1, time.monotonic()
    yield number
    while time.monotonic() + (time.monotonic() - begun_s) < end_s:
        number, begun_s = number + 1, time.monotonic()
        yield number


def _print_report(report: dict[str, Any]) -> None:
    machine = report["machine"]
    print(f"{report['date']}  {report['command']}")
    print(
        f"{machine['cpu']}, {machine['cpus']} CPUs ({' '.join(machine['features'])}), {machine['memory_gib']} GiB, "
        f"{machine['system']}, load {machine['load'][0]} before and {machine['load_at_the_end'][0]} after"
    )
    if "bf16" not in {result["precision"] for result in report["matches"].values()}:
        print("fp32 alone: bf16 was not asked for, or this processor does not multiply it in hardware")
    versions = {}
    for result in report["matches"].values():
        for name, row in result["contenders"].items():
            versions[name] = ", ".join(f"{package} {number}" for package, number in row["versions"].items())
    for name, text in versions.items():
        print(f"{name}: {text}")
    for note in report["notes"]:
        print(note)
    for result in report["matches"].values():
        print(table(result))


if __name__ == "__main__":
    sys.exit(main())
