"""Statistics and errors of many pictures, as measure_typical.py takes them: one .npz a model.

python tools/read_scenes.py src/viewslots/shipped/umbra umbra.npz cuda [NAME=FILE.h5 ...]
python tools/read_scenes.py --render clevr-m1 known.npz cpu [SHARE]
python tools/read_scenes.py src/viewslots/shipped/umbra umbra.npz cpu known.npz

The second draws the known scenes alone, or a share of them, and the third takes them: without a GPU that is half of the
time, and any number of models can read them.

Scenes of the data that the model was trained on, of seeds that no training has used, four views each, and of other
kinds; answered as the method answers by default. Files have groups with `image` [S, M, H, W, 3].
"""

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import torch
from other_pictures import other_kinds

from viewslots.data.presets import data_preset
from viewslots.provenance import provenance
from viewslots.runs import load_run, run_preset
from viewslots.types import SceneBatch
from viewslots.viewpoints.familiarity import picture_errors
from viewslots.viewpoints.photos import read_pictures
from viewslots.viewpoints.scene import InferredScene, Reader, seeded
from viewslots.viewpoints.statistics import picture_statistics

VIEWS, AT_ONCE = 4, 50
KNOWN = {"fit": (20_240_501, 1000), "limits": (20_240_502, 1000), "new": (20_240_503, 500)}
"""Seed and number of scenes."""
OTHERS = 200
"""Scenes of every other kind; with a share of the known scenes, that share of them."""
KEYS = ("statistics", "errors", "views")
CHANGED = {
    "upside down": lambda image: image[:, :, ::-1],
    "negative": lambda image: 255 - image,
    "red and blue exchanged": lambda image: image[..., ::-1],
    "half as bright": lambda image: image // 2,
}
"""Of known scenes: what is near to them, and yet unknown."""


def known_scenes(preset: str, device: str, share: float = 1.0) -> dict[str, np.ndarray]:
    return {name: rendered(preset, seed, round(share * count), device) for name, (seed, count) in KNOWN.items()}


def rendered(preset: str, seed: int, count: int, device: str) -> np.ndarray:
    world, made = data_preset(preset).world(None), []
    for first in range(0, count, AT_ONCE):
        drawn = [world.sample(seed, "test1", index) for index in range(first, min(first + AT_ONCE, count))]
        few = [replace(scene, cameras=scene.cameras[:VIEWS]) if hasattr(scene, "cameras") else scene for scene in drawn]
        made.append(world.render(few, world.slots("test1"), device).image[:, :VIEWS])
    return np.concatenate(made)


def read(reader: Reader, images: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[S, M, F] statistics, [S, M] errors and [S, M, D] codes of viewpoints."""
    scenes = torch.from_numpy(np.ascontiguousarray(images)).permute(0, 1, 4, 2, 3).float() / 255
    if images.shape[2:4] != reader.size:
        scenes = torch.stack([read_pictures(image, reader.size) for image in images])
    errors, views = [], []
    for first in range(0, len(scenes), AT_ONCE):
        image = scenes[first : first + AT_ONCE].to(reader.device)
        batch = SceneBatch(image, torch.ones(image.shape[:2], dtype=torch.bool, device=reader.device))
        answer = reader.model.infer(batch, seeded(first), reader.slots, reader.search)
        for place, pictures in enumerate(image):
            scene = InferredScene(reader, pictures, **vars(answer.scene_codes(place)))
            errors.append(picture_errors(scene).cpu().numpy())
            views.append(scene.views.cpu().numpy())
    statistics = [picture_statistics(scene).numpy() for scene in scenes]
    return np.stack(statistics), np.stack(errors), np.stack(views)


def main(folder: str, out: str, device: str, *files: str) -> None:
    reader, preset = Reader(load_run(folder).requires_grad_(False).to(device)), str(run_preset(folder)["world"])
    kinds = {} if files else known_scenes(preset, device)
    for file in (file for file in files if file.endswith(".npz")):
        with np.load(file) as opened:
            assert str(opened["preset"]) == preset, f"{file} has scenes of {opened['preset']}, not of {preset}"
            kinds |= {name: opened[name] for name in KNOWN if name in opened.files}
    if "new" in kinds:
        others = OTHERS * len(kinds["new"]) // KNOWN["new"][1]
        changed = {name: change(kinds["new"][:others]) for name, change in CHANGED.items()}
        kinds |= {name: images for name, images in other_kinds(others).items() if name != preset} | changed
    for name, _, file in (pair.partition("=") for pair in files if not pair.endswith(".npz")):
        with h5py.File(file) as opened:
            kinds[name] = np.concatenate([group["image"][:, :VIEWS] for group in opened.values()])
    found = {}
    for name, images in kinds.items():
        found |= {f"{name}/{key}": value for key, value in zip(KEYS, read(reader, images), strict=True)}
        print(name, *images.shape, flush=True)
    words = ["python", "tools/read_scenes.py", folder, Path(out).name, device, *(Path(file).name for file in files)]
    command = {"command": shlex.join(words)}
    np.savez(Path(out), about=json.dumps(provenance() | command), **found)


if __name__ == "__main__":
    torch.set_num_threads(1)  # what stays on the CPU is small
    if sys.argv[1] == "--render":
        preset, out, device, *share = sys.argv[2:]
        np.savez(out, preset=preset, **known_scenes(preset, device, *map(float, share)))
    else:
        main(*sys.argv[1:])
