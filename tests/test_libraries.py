"""Libraries that are too old are named before they fail (case M2)."""

from __future__ import annotations

from importlib import metadata

import pytest

from batchzs.errors import MachineError
from batchzs.libraries import refuse_old_libraries

REQUIREMENTS = ["torch>=2.6", "polars>=1.34", "transformers>=4.48", "pytest>=8.2; extra == 'dev'"]


def install(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    """Have these libraries installed and no others."""

    def version(name: str) -> str:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(metadata, "requires", lambda _: REQUIREMENTS)
    monkeypatch.setattr(metadata, "version", version)


@pytest.mark.parametrize("torch", ["2.6", "2.6.0+cu124", "2.13.1", "10.0.dev1"])
def test_new_ones_pass(monkeypatch: pytest.MonkeyPatch, torch: str) -> None:
    """Numbers are compared as numbers; what is not installed, and what only tests need, is not asked for."""
    install(monkeypatch, torch=torch, polars="1.34.0", pytest="1.0")
    refuse_old_libraries()


def test_each_old_one_is_named_with_both_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed and needed, all of them at once."""
    install(monkeypatch, torch="2.5.1+cpu", polars="1.9.0", transformers="5.1")
    with pytest.raises(MachineError) as caught:
        refuse_old_libraries()
    assert str(caught.value).startswith(
        "torch 2.5.1+cpu is installed, and 2.6 or later is needed; polars 1.9.0 is installed, and 1.34 or later is"
    )


def test_sources_that_are_not_installed_declare_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then there is nothing to compare with."""

    def requires(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", requires)
    refuse_old_libraries()


def test_what_is_installed_here_passes() -> None:
    """The real declaration is read."""
    assert any(requirement.startswith("torch>=") for requirement in metadata.requires("batchzs") or [])
    refuse_old_libraries()
