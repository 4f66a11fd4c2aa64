"""How well a model rebuilds pictures of the kind it was trained on: typical.json beside its weights.

python tools/measure_typical.py src/viewslots/shipped/compact

Scenes of the data that it was trained on, of a seed that no training has used, four views each, answered as the method
answers by default: as people are shown them.
"""

import sys
from pathlib import Path

import numpy as np

from viewslots.data.presets import data_preset
from viewslots.files import sha256, write_json
from viewslots.provenance import provenance
from viewslots.runs import run_preset
from viewslots.viewpoints.familiarity import TYPICAL_FILE, picture_errors
from viewslots.viewpoints.scene import load

DATA = "generated pictures of CLEVR's spheres, cubes and cylinders on a grey floor"
SEED, SPLIT, SCENES, VIEWS, AT_ONCE = 20_240_501, "test1", 100, 4, 5
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.995, 1.0)


def measure(folder: Path) -> None:
    preset = str(run_preset(folder)["world"])
    reader, world = load(folder), data_preset(preset).world(None)
    errors: list[float] = []
    for first in range(0, SCENES, AT_ONCE):
        scenes = [world.sample(SEED, SPLIT, index) for index in range(first, first + AT_ONCE)]
        made = world.render(scenes, world.slots(SPLIT)).first_views(VIEWS)
        for pictures in made.image:
            errors += picture_errors(reader.decompose(pictures)).tolist()
        print(f"{first + AT_ONCE} of {SCENES} scenes", file=sys.stderr)
    figures = {
        "data": DATA,
        "pictures": len(errors),
        "mean": float(np.mean(errors)),
        "standard_deviation": float(np.std(errors, ddof=1)),
        "quantiles": {str(share): float(np.quantile(errors, share)) for share in QUANTILES},
        "scenes": {"preset": preset, "seed": SEED, "split": SPLIT, "scenes": SCENES, "views": VIEWS},
        "weights_sha256": sha256(folder / "model.safetensors"),
        "provenance": provenance() | {"command": f"python tools/measure_typical.py {folder}"},
    }
    write_json(folder / TYPICAL_FILE, figures)


if __name__ == "__main__":
    measure(Path(sys.argv[1]))
