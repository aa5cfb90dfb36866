"""What importing a module loads: the command answers at once, and the engine runs where there is little else."""

import pytest

from tests.builders import run_python

LOADED = """
import importlib, sys
for name in sys.argv[1].split(","):
    importlib.import_module(name)
print(" ".join(sorted({name.partition(".")[0] for name in sys.modules})))
"""
HEAVY = {"torch", "transformers", "modelscope", "polars", "pyarrow", "numpy", "altair", "jinja2", "vl_convert"}


def loaded_by(*modules: str) -> set[str]:
    """The top-level packages that importing some modules in a new Python loads."""
    return set(run_python(LOADED, ",".join(modules)).split())


def test_the_command_loads_nothing_heavy() -> None:
    """`batchzs --help` answers at once."""
    assert not loaded_by("batchzs.cli") & (HEAVY | {"pydantic", "yaml", "tokenizers"})


@pytest.mark.parametrize(
    "module",
    [
        "batching",
        "pairs",
        "scoring",
        "plan",
        "fingerprint",
        "job",
        "decide.decisions",
        "decide.priors",
        "decide.closeness",
    ],
)
def test_the_pure_modules_load_no_torch(module: str) -> None:
    """They are tested, and used by tools, on machines without it; nor do they load what reads files."""
    assert not loaded_by(f"batchzs.{module}") & {"torch", "transformers", "modelscope", "polars", "pyarrow"}


def test_the_engine_and_the_packed_path_need_torch_numpy_and_tokenizers_alone() -> None:
    """So that a run starts fast and the engine runs on a machine that has little else."""
    loaded = loaded_by("batchzs.engine", "batchzs.models.loaded", "batchzs.models.tokenizer")
    assert {"torch", "numpy", "tokenizers"} <= loaded
    assert not loaded & {"polars", "pyarrow", "transformers", "modelscope", "pydantic", "pandas"}


def test_the_engine_alone_loads_no_torch() -> None:
    """The model object is handed to it: a fake one needs none."""
    assert "torch" not in loaded_by("batchzs.engine", "batchzs.test_hook")


def test_the_package_exports_its_classifier_and_loads_nothing_for_it() -> None:
    """`from batchzs import Classifier` is all that a notebook needs, and `import batchzs` costs nobody anything."""
    assert not loaded_by("batchzs") & (HEAVY | {"pydantic", "yaml", "tokenizers", "click"})
    loaded = run_python("from batchzs import Classifier; import sys; print(*sys.modules)").split()
    assert "polars" in loaded
    assert not {"torch", "transformers", "modelscope"} & set(loaded)
