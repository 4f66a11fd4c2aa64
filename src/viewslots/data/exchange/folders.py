"""Data sets as folders of pictures, masks and cameras, which other programs open and `import-data pictures` reads.

OUT/SPLIT/SCENE/000.png, 000_segment.png (object k is k + 1, 0 = background), transforms.json. Masks are PNG of indices
with a palette, so that people see them in colours. Pillow reads the indices; readers that expand palettes (OpenCV,
matplotlib) give colours.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from viewslots.data.store import SplitArrays, Store
from viewslots.files import drafting, plain_errors, require_new
from viewslots.types import BACKGROUND, OnProgress

LONGEST = 200
"""Bytes of a folder's name."""
GOLDEN = 0.618034
"""Hues that step by this share of the circle stay apart, however many there are."""


def export_folders(store: Store, out: Path, progress: OnProgress | None = None) -> Path:
    """Written under another name and renamed when complete: an interruption leaves nothing that passes for a result."""
    require_new(out)
    done, total = 0, sum(split.scenes for split in store.meta.plan.splits.values())
    with plain_errors("writing", out), drafting(out) as draft:
        draft.mkdir(parents=True)
        for name in store.splits:
            split = store.split(name)
            for scene, called in enumerate(folder_names(store, name)):
                folder = draft / name / called
                folder.mkdir(parents=True)
                _write_scene(split, scene, folder)
                done += 1
                if progress is not None:
                    progress(done, total)
    return out


def folder_names(store: Store, split: str) -> list[str]:
    """Scenes as their source called them, where every one of these can be a folder of its own; else numbers."""
    count = store.meta.plan.splits[split].scenes
    names = [name.rpartition("/")[2] for name in store.names(split) or ()]
    if names and len({name.lower() for name in names}) == count and all(map(_can_be_a_folder, names)):
        return names
    return [f"{scene:0{max(4, len(str(count - 1)))}d}" for scene in range(count)]


def _can_be_a_folder(name: str) -> bool:
    """On any system, and seen as one by an import, for which `images` is a part of a scene; names out of files are not
    to be trusted."""
    plain = bool(name) and name.isprintable() and len(name.encode()) <= LONGEST and not name.startswith((".", "__"))
    return plain and name.lower() != "images" and not set(name) & set('\\/:*?"<>|') and not name.endswith((" ", "."))


def _write_scene(split: SplitArrays, scene: int, folder: Path) -> None:
    frames = []
    for view in range(split.view_counts[scene]):
        known = {
            key: np.asarray(split[key][scene, view])
            for key in ("image", "segment", "pose", "intrinsics")
            if key in split
        }
        Image.fromarray(known["image"]).save(folder / f"{view:03d}.png")
        if "segment" in known:
            mask_picture(known["segment"]).save(folder / f"{view:03d}_segment.png")
        frames.append({"file_path": f"{view:03d}.png"} | _camera(known, *known["image"].shape[:2]))
    if "pose" in split or "intrinsics" in split:
        text = json.dumps({"camera_model": "OPENCV", "frames": frames}, indent=1)
        (folder / "transforms.json").write_text(text + "\n")


def mask_picture(segment: NDArray[np.uint8]) -> Image.Image:
    """Indices, black for the background and a colour of its own for each object."""
    picture = Image.fromarray(index_mask(segment))
    picture.putpalette(mask_colours())
    return picture


@cache
def mask_colours() -> list[int]:
    """Red, green and blue of each index, one after the other; black for 0."""
    hues = 2 * np.pi * (np.arange(1, 256)[:, None] * GOLDEN + np.arange(3) / 3)
    return [0, 0, 0, *(127.5 + 127.5 * np.cos(hues)).round().astype(int).ravel().tolist()]


def index_mask(segment: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.where(segment == BACKGROUND, 0, segment + np.uint8(1)).astype(np.uint8)


def _camera(known: Mapping[str, NDArray[Any]], height: int, width: int) -> dict[str, Any]:
    camera: dict[str, Any] = {"w": width, "h": height}
    if "intrinsics" in known:
        camera |= dict(zip(("fl_x", "fl_y", "cx", "cy"), known["intrinsics"].tolist(), strict=True))
    if "pose" in known:
        camera["transform_matrix"] = known["pose"].tolist()
    return camera
