"""What lies in a run folder under which name, and how others read it: is it one, and which model does it point to?"""

from pathlib import Path

from viewslots.files import read_json

CONFIG, ORIGIN, RUN_KIND = "config.json", "run.json", "viewslots run"
"""What a run was asked for, a copy of that inside a kept model, and how the first says that it is of a run."""
FIRST = "first"
"""Folder of the stage before inside a run of several, and its settings in the other's config.json."""
METRICS_FILE = "metrics.jsonl"
"""What was measured, a row a line."""
METRICS_LIMIT = 2**30
"""So much of one is read; a row is about a kilobyte."""


def is_run(folder: Path) -> bool:
    """A run folder, not a saved model."""
    return bool(read_json(folder / CONFIG).get("kind") == RUN_KIND)


def pointer(run: Path, which: str) -> Path:
    """best.json or last.json: which folder has the model with the lowest validation loss, or the newest saved one."""
    return run / f"{which}.json"


def pointed(run: Path, which: str) -> tuple[str | None, int | None]:
    """The folder and the step that such a file names; None for what it does not name."""
    told = read_json(pointer(run, which))
    name, step = told.get("folder"), told.get("step")
    return name if isinstance(name, str) else None, step if type(step) is int else None
