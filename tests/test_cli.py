"""What the command says of itself."""

from __future__ import annotations

import click
import pytest

from batchzs import errors
from batchzs.cli import EXIT_CODES, batchzs
from tests.builders import run_python


@pytest.mark.parametrize("name", sorted(batchzs.commands))
def test_every_command_has_an_example_and_says_what_its_options_do(name: str) -> None:
    """`batchzs NAME --help` shows the command in use, and no option without a word."""
    command = batchzs.commands[name]
    assert command.epilog is not None
    assert f"Example:\n  batchzs {name} " in command.epilog
    assert command.help
    assert all(option.help for option in command.params if isinstance(option, click.Option))


#: Commands without `--json`, and why.
WITHOUT_JSON = {"schema": "what it prints is JSON as it is"}


@pytest.mark.parametrize("name", sorted(batchzs.commands))
def test_every_command_speaks_to_programs(name: str) -> None:
    """`--json` everywhere, under one name, but where there is a reason; a new command gets it from the start."""
    flags = [option for option in batchzs.commands[name].params if "--json" in option.opts]
    assert len(flags) == (0 if name in WITHOUT_JSON else 1)
    assert all(isinstance(option, click.Option) and option.is_flag and option.name == "as_json" for option in flags)
    assert set(WITHOUT_JSON) <= set(batchzs.commands)


def test_the_help_lists_every_exit_code() -> None:
    """Each error's code is in the list that `batchzs --help` ends with."""
    listed = {line.split()[0] for line in EXIT_CODES.splitlines()[2:]}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.BatchzsError)]
    assert listed == {"0", *(str(kind.exit_code) for kind in kinds)}


def test_the_shell_completes_commands() -> None:
    """As README says, by click's own means; a shell asks the installed command."""
    program = """
import os, sys
sys.argv = ["batchzs"]
os.environ.update(_BATCHZS_COMPLETE="bash_complete", COMP_WORDS="batchzs de", COMP_CWORD="1")
from batchzs.cli import main
main()
"""
    assert run_python(program).split() == ["plain,decide"]
