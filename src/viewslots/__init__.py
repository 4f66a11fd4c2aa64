"""Unsupervised understanding of scenes from several pictures taken from unknown viewpoints."""

import importlib as _importlib
import os as _os
from typing import TYPE_CHECKING as _TYPE_CHECKING

# Before torch is loaded: threads that spin while they wait make a busy machine ten times slower.
_os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

if _TYPE_CHECKING:
    from viewslots.data.torch_dataset import Scenes as Scenes
    from viewslots.methods.contract import Search as Search
    from viewslots.types import SceneBatch as SceneBatch
    from viewslots.viewpoints.scene import load as load

__version__ = "0.2.0"
__all__ = ["SceneBatch", "Scenes", "Search", "__version__", "load"]

_PLACES = {
    "load": "viewslots.viewpoints.scene",
    "Scenes": "viewslots.data.torch_dataset",
    "Search": "viewslots.methods.contract",
    "SceneBatch": "viewslots.types",
}


def __getattr__(name: str) -> object:
    """Imported when it is first asked for: `import viewslots` alone stays light."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    """What completion offers."""
    shown = {name for name in globals() if not name.startswith("_") or name.startswith("__")}
    return sorted(shown | {*__all__})
