"""Draw docs/pictures/: a sheet of every data set with its truth, from scenes of seed 0, split test1.

python tools/dataset_pictures.py
"""

from pathlib import Path

from viewslots.data.presets import DATA_PRESETS
from viewslots.figures.sheets import contact_sheet

OUT = Path(__file__).parent.parent / "docs" / "pictures"


def sheet(name: str) -> None:
    world = DATA_PRESETS[name].world(None)
    scenes, views = (2, 4) if world.views > 1 else (8, 1)
    made = world.render([world.sample(0, "test1", index) for index in range(scenes)], world.slots("test1"))
    zoom = 2 if world.width == 64 else 1
    contact_sheet(made.first_views(views), zoom).save(OUT / f"{name}.png", optimize=True)


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    for name in DATA_PRESETS:
        sheet(name)
