"""Distance of our renderer from Blender: the table in docs/reproduction.md, as JSON.

    python benchmarks/fidelity.py --out benchmarks/results/fidelity.json

The references (tests/data/blender_refs) are ten CLEVR-M pictures by Cycles with 1,024 samples and the original shapes and
materials. Differences are means of |ours - Blender| of the 8-bit pictures, in units of 1/255.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from viewslots.provenance import provenance
from viewslots.scenes.film import to_srgb8
from viewslots.scenes.render import QUALITIES, render_views
from viewslots.scenes.spec import Scene
from viewslots.types import BACKGROUND

REFERENCES = Path(__file__).parent.parent / "tests" / "data" / "blender_refs"
ONE_PIXEL = 255
"""Objects with less than one pixel of alpha in the picture say nothing about shapes."""


def compare(path: Path, quality: str) -> dict[str, Any]:
    import torch

    scene = Scene.load(path)
    pictures, _ = render_views([scene], len(scene.objects), quality=quality)
    with np.load(path.with_suffix(".npz")) as reference:
        wanted = to_srgb8(torch.from_numpy(reference["linear"])).numpy().astype(int)
        segment, amodal = reference["segment"], reference["amodal"].astype(float)
    difference = np.abs(pictures.image[0, 0].astype(int) - wanted)
    shapes = pictures.shapes[0, 0].astype(float)
    overlap = np.minimum(shapes, amodal).sum((1, 2)) / np.maximum(np.maximum(shapes, amodal).sum((1, 2)), 1)
    counted = amodal.sum((1, 2)) >= ONE_PIXEL
    return {
        "reference": path.stem,
        "all_pixels": float(difference.mean()),
        "object_pixels": float(difference[segment != BACKGROUND].mean()),
        "segment_equal": float((pictures.segment[0, 0] == segment).mean()),
        "shape_iou": float(overlap[counted].mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    paths = sorted(REFERENCES.glob("ref_*.json"))
    rows = {quality: [compare(path, quality) for path in paths] for quality in QUALITIES}
    means = {
        quality: {key: float(np.mean([row[key] for row in part])) for key in part[0] if key != "reference"}
        for quality, part in rows.items()
    }
    story = provenance() | {"command": f"python benchmarks/fidelity.py --out {out}"}
    out.write_text(json.dumps({"provenance": story, "mean": means, "rows": rows}, indent=1) + "\n")
    print(json.dumps(means, indent=1))


if __name__ == "__main__":
    main()
