"""Unsupervised understanding of scenes from several pictures taken from unknown viewpoints."""

import os
from typing import TYPE_CHECKING, Any

# Before torch is loaded: threads that spin while they wait make a busy machine ten times slower.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

if TYPE_CHECKING:
    from viewslots.viewpoints.scene import load as load

__version__ = "0.1.0"
__all__ = ["__version__", "load"]


def __getattr__(name: str) -> Any:
    """`viewslots.load`, imported when it is first asked for: `import viewslots` alone stays light."""
    if name != "load":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from viewslots.viewpoints.scene import load

    return load
