"""What to run next, as it can be typed here."""

import os
import shutil
import sys
from pathlib import Path


def program() -> str:
    """How this installation is called from this folder."""
    if shutil.which("viewslots"):
        return "viewslots"
    beside = Path(sys.executable).parent / "viewslots"
    if not beside.is_file():
        return f"{sys.executable} -m viewslots"
    near = os.path.relpath(beside)
    return str(beside) if near.startswith("..") else near


def next_commands(data: Path) -> list[tuple[str, str]]:
    """Commands, and what each is for."""
    call = program()
    return [
        (f"{call} explore", "a local page on which you turn the camera and take objects out yourself"),
        (f"{call} decompose compact PICTURE... --out layers", "your own pictures of one scene"),
        (f"{call} figures compact --data {data} --out figures", "all figures of these scenes, ready for print"),
        (f"{call} train compact --data live --run runs/mine", "train a model of your own"),
    ]
