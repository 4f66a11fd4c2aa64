"""demo and info."""

import time
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from viewslots.terminal import Progress, print_json, say


def demo(
    out: Path = Path("demo"),
    seed: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: new scenes at every call)")] = None,
) -> None:
    """Make a small multi-view data set and show it: a contact sheet of scenes with their truth.

    Args:
        out: Folder for the data set and the sheet.
        seed: Seed of the scenes.
    """
    from viewslots.demo.run import run_demo

    if seed is None:
        seed = time.time_ns() % 1_000_000
    with Progress("scenes") as progress:
        sheet, folder = run_demo(out, seed, progress)
    print_json({"sheet": str(sheet), "data": str(folder), "seed": seed})
    say(f"Open {sheet} to see four views of new scenes with their truth.")
    say(f"Next: viewslots check-data {folder}; or a whole data set: viewslots make-data clevr-m1 --out clevr-m1")


def info(preset: Positional[str], /) -> None:
    """Describe a model preset: parameters by network, sizes of the latents, schedule.

    Args:
        preset: clevr-m1..m4, clevr, dsprites, abstract (the paper's), compact, tiny (ours).
    """
    from viewslots.model_presets import describe

    print_json(describe(preset))
