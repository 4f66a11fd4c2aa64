"""Whether other pictures of a scene lie where the explorer says that the model does not guess.

python tools/measure_reach.py compact docs/results/explorer/reach.json [SCENES]

Four pictures are given. The viewpoints of six more are estimated: how many lie in the region of known viewpoints
(typical.json), and how well are these pictures rebuilt, within and beyond? Beside that, new viewpoints at growing
distances from the middle of the region: how far is what is seen there from any picture that the model knows?
"""

import sys
from pathlib import Path

import numpy as np
import torch

from viewslots.data.presets import data_preset
from viewslots.files import write_json
from viewslots.provenance import provenance
from viewslots.runs import run_preset
from viewslots.viewpoints.familiarity import RATE, known_viewpoints
from viewslots.viewpoints.scene import load

SEED, SPLIT, GIVEN, NEW = 20_240_504, "test1", 4, 8
SHARES = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
"""Of the limit of the region."""


def main(name: str, out: str, scenes: str = "25") -> None:
    reader, world = load(name), data_preset(str(run_preset(name)["world"])).world(None)
    typical, region = reader.typical, known_viewpoints(reader)
    assert typical is not None
    far: list[float] = []
    errors: list[float] = []
    oddity: dict[str, list[float]] = {str(share): [] for share in SHARES}
    random = torch.Generator().manual_seed(SEED)
    for index in range(int(scenes)):
        drawn = world.render([world.sample(SEED, SPLIT, index)], world.slots(SPLIT))
        pictures = torch.from_numpy(drawn.image[0]).permute(0, 3, 1, 2).float() / 255
        scene = reader.decompose(pictures[:GIVEN])
        views = scene.estimate(pictures[GIVEN:])
        shown = torch.stack([view.image for view in scene.render_many(views)])
        far += [region.distance(view) for view in views]
        errors += (shown - pictures[GIVEN:]).square().mean((1, 2, 3)).tolist()
        for share in SHARES:
            ways = torch.randn(NEW, len(region.mean), generator=random, dtype=torch.float64)
            ways = share * region.limit * ways / ways.norm(dim=1, keepdim=True)
            codes = region.mean + ways @ torch.linalg.inv(region.whitening)
            seen = torch.stack([view.image for view in scene.render_many(codes.float())])
            oddity[str(share)] += (typical.distances(seen) / typical.limits[RATE].distance).tolist()
        print(f"scene {index + 1} of {scenes}", file=sys.stderr)
    within, error = np.array(far) <= region.limit, np.array(errors)
    figures = {
        "model": name,
        "scenes": {"seed": SEED, "split": SPLIT, "scenes": int(scenes), "given": GIVEN},
        "other_pictures": len(far),
        "share_within": float(within.mean()),
        "mean_squared_error": {
            "within": float(error[within].mean()),
            "beyond": float(error[~within].mean()) if (~within).any() else None,
        },
        "oddity_of_new_views": {share: float(np.median(values)) for share, values in oddity.items()},
        "odd_new_views": {share: float(np.mean(np.array(values) > 1)) for share, values in oddity.items()},
        "provenance": provenance() | {"command": f"python tools/measure_reach.py {name} {out} {scenes}"},
    }
    write_json(Path(out), figures)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
