"""demo."""

import time
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from viewslots.terminal import Progress, print_json, say


def demo(
    out: Path = Path("demo"),
    seed: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: new scenes at every call)")] = None,
) -> None:
    """New scenes, a trained model that never saw them, what it makes of them, scores, a video: one page to look at.

    Args:
        out: Folder for the page and everything in it.
        seed: Seed of the scenes.
    """
    from viewslots.demo.demonstration import run_demo

    if seed is None:
        seed = time.time_ns() % 1_000_000
    with Progress("%", "demo") as progress:
        made = run_demo(out, seed, progress=progress)
    print_json(made.to_json())
    say(f"Open {made.report} in a browser to see what the model understood. Next: {made.next_commands[0]}")
