"""The libraries that are installed, held against the oldest ones that this batchzs works with.

Upgrading one package of an environment may leave another one behind. Without this look the run would end hours later,
or at once with an import error from somewhere deep inside. The ranges are those of pyproject.toml, as the installed
package declares them; there is no upper end to refuse by.
"""

from __future__ import annotations

import re
from importlib import metadata

from batchzs.errors import MachineError

_LEAST = re.compile(r"([A-Za-z0-9._-]+)>=([0-9.]+)")  # as pyproject.toml writes requirements; extras have more in them


def refuse_old_libraries() -> None:
    """See that no library is older than batchzs needs.

    Raises:
        MachineError: some are; the message has each one's installed and least version.
    """
    try:
        requirements = metadata.requires("batchzs") or []
    except metadata.PackageNotFoundError:  # run from its sources, which declare nothing that could be read here
        return
    old = []
    for requirement in requirements:
        declared = _LEAST.fullmatch(requirement)
        if declared is None:
            continue
        name, least = declared.groups()
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:  # not every command needs every library
            continue
        if _release(installed) < _release(least):
            old.append(f"{name} {installed} is installed, and {least} or later is needed")
    if old:
        raise MachineError(f"{'; '.join(old)}: upgrade it in this environment, or install batchzs into one of its own")


def _release(version: str) -> tuple[int, ...]:
    """The numbers of a version, without what says which build it is.

    >>> _release("2.10.0+cu124") > _release("2.6"), _release("3.0rc1")
    (True, (3, 0))
    """
    return tuple(int(number) for number in re.findall(r"\d+", re.split(r"[^0-9.]", version, maxsplit=1)[0]))
