"""Distance of our renderer from Blender on tabletop scenes: the table and the sheet in docs/blender.md.

    python benchmarks/fidelity_tabletop.py --blender .venv-blender/bin/python --drawings build/blender \\
        --out benchmarks/results/fidelity_tabletop.json --sheet docs/pictures/tabletop-blender.png

The first scenes of test1 with seed 0, not chosen; of each the first view. Blender draws each picture twice: with all
bounces and the truth, and with one bounce as ours. Every fourth is drawn again with another seed, which tells Blender's
own noise. Drawings are kept under --drawings and used again as long as description and samples are the same.
"""

import argparse
import hashlib
import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from fidelity import Drawing, compare, drawing_in, mean_of, run_blender
from PIL import Image
from tqdm import tqdm

from viewslots.provenance import provenance
from viewslots.scenes.tabletop.expose import SAMPLES, render_tables
from viewslots.scenes.tabletop.family import TABLETOP
from viewslots.scenes.tabletop.table_scene import TableScene

WAYS: dict[str, tuple[str, ...]] = {
    "all bounces": (),
    "one bounce": ("--bounces", "1", "--no-truth"),
    "other seed": ("--seed", "1000", "--no-truth"),
}
AMPLIFIED = 8
"""Differences on the sheet are this many times as bright."""
COLUMNS = 2
NOISE_EVERY = 4


def first_view(index: int) -> TableScene:
    scene = TABLETOP["tabletop"].sample(0, "test1", index)
    return replace(scene, cameras=scene.cameras[:1])


def draw(scene: TableScene, quality: str) -> Drawing:
    pictures, _ = render_tables([scene], len(scene.objects), quality=quality)
    return {key: getattr(pictures, key)[0, 0] for key in ("image", "segment", "shapes")}


def drawn_by_blender(scene: TableScene, way: str, asked: argparse.Namespace) -> Drawing:
    """A drawing from the folder, or a new one put there."""
    text = json.dumps(scene.to_dict(), sort_keys=True)
    name = hashlib.sha256(json.dumps([text, asked.samples, WAYS[way]]).encode()).hexdigest()[:16]
    out = asked.drawings / f"{name}.npz"
    if not out.exists():
        out.with_suffix(".json").write_text(text)
        run_blender(asked.blender, out.with_suffix(".json"), out, asked.samples, *WAYS[way])
    return drawing_in(out)


def sheet(pairs: list[tuple[Drawing, Drawing]]) -> Image.Image:
    """Ours, Blender's and the difference, COLUMNS scenes a row."""
    tiles = []
    for ours, theirs in pairs:
        difference = np.abs(ours["image"].astype(int) - theirs["image"]) * AMPLIFIED
        tiles.append(np.concatenate([ours["image"], theirs["image"], difference.clip(0, 255).astype(np.uint8)], 1))
    tiles += [np.full_like(tiles[0], 255)] * (-len(tiles) % COLUMNS)
    rows = [np.concatenate(tiles[start : start + COLUMNS], 1) for start in range(0, len(tiles), COLUMNS)]
    return Image.fromarray(np.concatenate(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blender", type=Path, required=True, help="python of the Blender environment")
    parser.add_argument("--drawings", type=Path, required=True, help="folder that keeps Blender's drawings")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sheet", type=Path, required=True)
    parser.add_argument("--scenes", type=int, default=20)
    parser.add_argument("--samples", type=int, default=128, help="light paths a pixel, for Blender")
    asked = parser.parse_args()
    story = provenance() | {"command": f"python benchmarks/fidelity_tabletop.py {shlex.join(sys.argv[1:])}"}
    asked.drawings.mkdir(parents=True, exist_ok=True)
    rows: dict[str, list[dict[str, Any]]] = {}
    pairs = []
    for index in tqdm(range(asked.scenes)):
        scene = first_view(index)
        again = index % NOISE_EVERY == 0
        theirs = {way: drawn_by_blender(scene, way, asked) for way in WAYS if again or way != "other seed"}
        truth = theirs["all bounces"]
        ours = {quality: draw(scene, quality) for quality in SAMPLES}
        pairs.append((ours["reference"], truth))
        for quality, drawing in ours.items():
            for way in ("all bounces", "one bounce"):
                wanted = truth | theirs[way]
                rows.setdefault(f"{quality}, {way}", []).append(compare(str(index), drawing, wanted))
        for way in list(theirs)[1:]:
            rows.setdefault(f"Blender, {way}", []).append(compare(str(index), truth | theirs[way], truth))
    sheet(pairs).save(asked.sheet, optimize=True)
    means = {name: mean_of(part) for name, part in rows.items()}
    setting = {"blender": "bpy 4.5, Cycles on the CPU", "samples": asked.samples, "seed": 0, "split": "test1"}
    asked.out.write_text(json.dumps({"provenance": story | setting, "mean": means, "rows": rows}, indent=1) + "\n")
    print(json.dumps(means, indent=1))


if __name__ == "__main__":
    main()
