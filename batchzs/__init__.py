"""Label millions of texts overnight with a zero-shot StructBERT classifier.

The package's files, read from `cli` downwards, are the data flow of a run; docs/structure.md walks through them. From
Python, `from batchzs import Classifier` scores texts as a run does; nothing heavy is loaded before it is asked for.
"""

from typing import TYPE_CHECKING

__all__ = ["Classifier", "__version__"]

__version__ = "0.1.0"

if TYPE_CHECKING:
    from batchzs.classifier import Classifier
else:

    def __getattr__(name: str) -> object:
        """Load what is exported when it is first asked for: `import batchzs` and the command stay light."""
        if name == "Classifier":
            from batchzs.classifier import Classifier

            return Classifier
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
