"""Draw docs/pictures/: a sheet of every data set with its truth, from scenes of seed 0, split test1.

Of tabletop another one: the first view of the first 20 scenes.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from viewslots.data.presets import DATA_PRESETS
from viewslots.figures.sheets import contact_sheet
from viewslots.scenes.tabletop.family import TABLETOP

OUT = Path(__file__).parent.parent / "docs" / "pictures"


def sheet(name: str) -> None:
    world = DATA_PRESETS[name].world(None)
    scenes, views = (2, 4) if world.views > 1 else (8, 1)
    made = world.render([world.sample(0, "test1", index) for index in range(scenes)], world.slots("test1"))
    zoom = 2 if world.width == 64 else 1
    contact_sheet(made.first_views(views), zoom).save(OUT / f"{name}.png", optimize=True)


def first_scenes(name: str, rows: int = 4, columns: int = 5) -> None:
    """The first view of the first scenes, row by row."""
    world = replace(TABLETOP[name], views=1)
    scenes = [world.sample(0, "test1", index) for index in range(rows * columns)]
    image = world.render(scenes, world.slots("test1")).image
    sheet = image.reshape(rows, columns, *image.shape[2:]).swapaxes(1, 2).reshape(rows * world.height, -1, 3)
    Image.fromarray(np.ascontiguousarray(sheet)).save(OUT / f"{name}-scenes.png", optimize=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="data sets; all unless given")
    names = parser.parse_args().names or list(DATA_PRESETS)
    if odd := [name for name in names if name not in DATA_PRESETS]:
        parser.error(f"no data set {odd[0]!r}; choose among {', '.join(DATA_PRESETS)}")
    OUT.mkdir(parents=True, exist_ok=True)
    for name in names:
        sheet(name)
        if name == "tabletop":
            first_scenes(name)
