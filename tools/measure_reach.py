"""How far from the given pictures of a scene its other pictures lie, in the units of the explorer's pad.

python tools/measure_reach.py umbra docs/results/explorer/reach.json [SCENES]

Four pictures are given. The viewpoints of six more are estimated, and told in standard deviations of the given ones;
the largest of all directions counts. Beside that stands how well these pictures are rebuilt.
"""

import sys
from pathlib import Path

import numpy as np
import torch

from viewslots.data.presets import data_preset
from viewslots.explorer.session import KNOWN, compass_of
from viewslots.files import write_json
from viewslots.provenance import provenance
from viewslots.runs import run_preset
from viewslots.viewpoints.scene import load

SEED, SPLIT, GIVEN = 20_240_504, "test1", 4


def main(name: str, out: str, scenes: str = "25") -> None:
    reader, world = load(name), data_preset(str(run_preset(name)["world"])).world(None)
    far, errors = [], []
    for index in range(int(scenes)):
        drawn = world.render([world.sample(SEED, SPLIT, index)], world.slots(SPLIT))
        pictures = torch.from_numpy(drawn.image[0]).permute(0, 3, 1, 2).float() / 255
        scene = reader.decompose(pictures[:GIVEN])
        compass, views = compass_of(scene), scene.estimate(pictures[GIVEN:])
        shown = torch.stack([view.image for view in scene.render_many(views)])
        far += [max(map(abs, compass.coordinates(view))) for view in views]
        errors += (shown - pictures[GIVEN:]).square().mean((1, 2, 3)).tolist()
        print(f"scene {index + 1} of {scenes}", file=sys.stderr)
    distance, error = np.array(far), np.array(errors)
    within = distance <= KNOWN
    figures = {
        "model": name,
        "scenes": {"seed": SEED, "split": SPLIT, "scenes": int(scenes), "given": GIVEN},
        "pictures": len(distance),
        "limit": KNOWN,
        "share_within": float(within.mean()),
        "distance_quantiles": {str(share): float(np.quantile(distance, share)) for share in (0.5, 0.75, 0.9, 0.95)},
        "mean_squared_error": {
            "within": float(error[within].mean()),
            "beyond": float(error[~within].mean()) if (~within).any() else None,
        },
        "provenance": provenance() | {"command": f"python tools/measure_reach.py {name} {out} {scenes}"},
    }
    write_json(Path(out), figures)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
