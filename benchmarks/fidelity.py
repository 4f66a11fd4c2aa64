"""Distance of our renderer from Blender: the table in docs/reproduction.md, as JSON.

    python benchmarks/fidelity.py --out benchmarks/results/fidelity.json
    python benchmarks/fidelity.py --out benchmarks/results/fidelity_blender.json --blender .venv-blender/bin/python

The second line measures the Blender back end (docs/blender.md); benchmarks/fidelity_tabletop.py does tabletop.
The references (tests/data/blender_refs) are ten CLEVR-M pictures by Cycles with 1,024 samples and the original shapes
and materials. Differences are means of |ours - Blender| of the 8-bit pictures, in units of 1/255.
"""

import argparse
import functools
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from viewslots.provenance import provenance
from viewslots.scenes.clevr.render import QUALITIES, render_views
from viewslots.scenes.clevr.spec import Scene
from viewslots.scenes.film import to_srgb8
from viewslots.types import BACKGROUND

REFERENCES = Path(__file__).parent.parent / "tests" / "data" / "blender_refs"
BLENDER = Path(__file__).parent.parent / "src" / "viewslots" / "scenes" / "blender" / "render.py"
ONE_PIXEL = 255
"""Objects with less than one pixel of alpha in the picture say nothing about shapes."""


Drawing = dict[str, NDArray[np.uint8]]
"""image, segment and shapes of one view."""


def draw(path: Path, quality: str) -> Drawing:
    scene = Scene.load(path)
    pictures, _ = render_views([scene], len(scene.objects), quality=quality)
    return {key: getattr(pictures, key)[0, 0] for key in ("image", "segment", "shapes")}


def draw_with_blender(path: Path, python: Path, samples: int) -> Drawing:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "picture.npz"
        run_blender(python, path, out, samples)
        return drawing_in(out)


def run_blender(python: Path, path: Path, out: Path, samples: int, *options: str) -> None:
    """The picture of a description, written whole or not at all."""
    command = [python, BLENDER, path, "--out", out, "--samples", str(samples), *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def drawing_in(path: Path) -> Drawing:
    """Of the first view; without truth if the file has none."""
    with np.load(path) as drawing:
        return {key: drawing[key][0] for key in ("image", "segment", "shapes") if key in drawing}


def reference(path: Path) -> Drawing:
    with np.load(path.with_suffix(".npz")) as stored:
        image = to_srgb8(torch.from_numpy(stored["linear"])).numpy()
        return {"image": image, "segment": stored["segment"], "shapes": stored["amodal"]}


def compare(name: str, drawing: Drawing, wanted: Drawing) -> dict[str, Any]:
    segment, amodal = wanted["segment"], wanted["shapes"].astype(float)
    difference = np.abs(drawing["image"].astype(int) - wanted["image"].astype(int))
    shapes = drawing["shapes"].astype(float)
    overlap = np.minimum(shapes, amodal).sum((1, 2)) / np.maximum(np.maximum(shapes, amodal).sum((1, 2)), 1)
    counted = amodal.sum((1, 2)) >= ONE_PIXEL
    return {
        "reference": name,
        "all_pixels": float(difference.mean()),
        "object_pixels": float(difference[segment != BACKGROUND].mean()),
        "segment_equal": float((drawing["segment"] == segment).mean()),
        "shape_iou": float(overlap[counted].mean()),
    }


def mean_of(rows: list[dict[str, Any]]) -> dict[str, float]:
    return {key: float(np.mean([row[key] for row in rows])) for key in rows[0] if key != "reference"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--blender", type=Path, help="python of the Blender environment: measure Blender instead")
    parser.add_argument("--samples", type=int, default=512, help="light paths a pixel, for Blender")
    asked = parser.parse_args()
    paths = sorted(REFERENCES.glob("ref_*.json"))
    if asked.blender:
        ways = {f"blender-{asked.samples}": lambda path: draw_with_blender(path, asked.blender, asked.samples)}
    else:
        ways = {quality: functools.partial(draw, quality=quality) for quality in QUALITIES}
    rows = {name: [compare(path.stem, way(path), reference(path)) for path in paths] for name, way in ways.items()}
    means = {name: mean_of(part) for name, part in rows.items()}
    story = provenance() | {"command": f"python benchmarks/fidelity.py {shlex.join(sys.argv[1:])}"}
    asked.out.write_text(json.dumps({"provenance": story, "mean": means, "rows": rows}, indent=1) + "\n")
    print(json.dumps(means, indent=1))


if __name__ == "__main__":
    main()
