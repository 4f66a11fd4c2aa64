"""Methods that decompose scenes. Each answers with a Decomposition; none knows about files of pictures."""

from pathlib import Path
from typing import Any

from viewslots.errors import UserError
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.per_view.model import PerViewOcloc
from viewslots.methods.pretrained import CONFIG_FILE, find_file, read_settings
from viewslots.methods.umbra.model import Umbra

METHODS: dict[str, type[Ocloc]] = {kind.method: kind for kind in (Ocloc, PerViewOcloc, Umbra)}


def load_model(source: str | Path, **hub: Any) -> Ocloc:
    """A model of any method, from a folder or the Hugging Face Hub."""
    method, _ = read_settings(find_file(source, CONFIG_FILE, hub))
    if method not in METHODS:
        raise UserError(f"{source} holds a model of method {method!r}; known are {', '.join(METHODS)}")
    return METHODS[method].from_pretrained(source, **hub)
