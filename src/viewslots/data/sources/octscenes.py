"""OCTScenes: real tables, 60 frames around each.

    RESOLUTION/[image/]SSSS_FF.png     RESOLUTION/segments/SSSS_FF.png, 0 = background, of the test scenes
    640x480/pose/SSSS_FF.txt           camera to world

The names of some folders and the axes of the cameras are not published: what was found is said in a note.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from viewslots.data.picture_files import one_line, read_indices
from viewslots.data.sources.source import (
    OPENCV_AXES,
    Options,
    PictureFiles,
    View,
    largest_index,
    read_matrix,
    segment_of,
    spread,
)
from viewslots.errors import UserError

RESOLUTION = "128x128"
POSES = ("640x480/pose", "640x480/poses", "pose", "poses")
FRAME = re.compile(r"(\d{4})_(\d{2})\.png")
OTHER = re.compile("seg|mask|depth|pose|intrinsic", re.IGNORECASE)
"""In the names of folders without pictures."""
PART_A, PART_B = range(3100, 3200), range(4900, 5000)
"""Test scenes. Part A ends with them."""


class OctScenes(PictureFiles):
    """See Source."""

    def __init__(self, path: Path, options: Options) -> None:
        super().__init__(path, options)
        wanted = options.resolution or RESOLUTION
        if not re.fullmatch(r"\d{1,4}x\d{1,4}", wanted):
            raise UserError(f"--resolution {wanted}: must be WIDTHxHEIGHT, as a folder of OCTScenes is called")
        self._folder = path / wanted if (path / wanted).is_dir() else path
        if self._folder == path and options.resolution not in (None, path.name):
            raise UserError(f"{one_line(path)}: no folder {wanted} in it")
        pictures, frames = self._frames()
        numbers = sorted(frames)
        for number in numbers:
            names = sorted(frames[number])
            self._require_no_gap(pictures, names)
            self._pictures.append([pictures / names[place] for place in spread(len(names), options.views)])
        self.names = [f"{number:04d}" for number in numbers]
        self._find_masks(numbers)
        self._find_poses()

    def _frames(self) -> tuple[Path, dict[int, list[str]]]:
        """The one folder of pictures, and their names by scene."""
        found = {}
        for folder in (self._folder, *self._tree.folders(self._folder)):
            if folder == self._folder or not OTHER.search(folder.name):
                frames: dict[int, list[str]] = {}
                for file in self._tree.files(folder):
                    if match := FRAME.fullmatch(file.name):
                        frames.setdefault(int(match[1]), []).append(file.name)
                if frames:
                    found[folder] = frames
        if len(found) > 1:
            places = ", ".join(one_line(folder) for folder in found)
            raise UserError(f"{one_line(self._folder)}: pictures in more than one folder ({places}); keep one")
        if not found:
            raise UserError(f"{one_line(self._folder)}: no pictures named SSSS_FF.png, here or in a folder below")
        folder, frames = next(iter(found.items()))
        self.notes.append(f"pictures of {self._tree.name(folder)}")
        return folder, frames

    def _require_no_gap(self, folder: Path, names: Sequence[str]) -> None:
        for number, name in enumerate(names):
            if int(name[5:7]) - int(names[0][5:7]) != number:
                missing = f"{name[:5]}{int(names[0][5:7]) + number:02d}.png"
                raise UserError(f"{one_line(folder / missing)}: missing, but {name} is there")

    def _find_masks(self, numbers: Sequence[int]) -> None:
        """Scenes with masks are the test scenes, or the numbers of the part say which are."""
        test = PART_B if numbers[-1] > PART_A[-1] else PART_A
        folders = [folder for folder in self._tree.folders(self._folder) if re.match("seg|mask", folder.name)]
        self._masks: dict[int, list[Path]] = {}
        if folders and self._options.masks:
            for scene, pictures in enumerate(self._pictures):
                masks = [folders[0] / picture.name for picture in pictures]
                if self._present(masks, "mask", "--no-masks"):
                    self._masks[scene] = masks
        tested = {scene for scene, number in enumerate(numbers) if number in test} or set(self._masks)
        if tested:
            self.splits = ["test1" if scene in tested else "train" for scene in range(len(numbers))]
            rest = [scene for scene in range(len(numbers)) if scene not in tested]
            if any(scene not in self._masks for scene in rest):  # of some training scenes: of use to nobody
                self._masks = {scene: masks for scene, masks in self._masks.items() if scene in tested}

    def _find_poses(self) -> None:
        self._poses: dict[int, list[Path]] = {}
        folder = next((self._tree.root / name for name in POSES if (self._tree.root / name).is_dir()), None)
        if folder is None or not self._options.cameras:
            return
        for scene, pictures in enumerate(self._pictures):
            poses = [folder / f"{picture.stem}.txt" for picture in pictures]
            if self._present(poses, "pose", "--no-cameras"):
                self._poses[scene] = poses
        first = next(iter(self._poses.values()), None)
        if first is not None:
            forward = looks_forward(np.stack([read_matrix(file, (4, 4)) for file in first]))
            self._axes = OPENCV_AXES if forward else np.eye(4)
            kind = "look along +z, and are turned to OpenGL axes" if forward else "look along -z"
            self.notes.append(f"poses of {self._tree.name(folder)}; their cameras {kind}")

    def _beside(self, scene: int) -> Iterator[Path]:
        yield from self._masks.get(scene, ())
        yield from self._poses.get(scene, ())

    def _known(self, scene: int) -> tuple[set[str], int]:
        keys = {"pose"} if scene in self._poses else set()
        if scene not in self._masks:
            return keys, 0
        return keys | {"segment"}, largest_index(self._masks[scene])

    def _truth(self, scene: int, place: int, height: int, width: int) -> View:
        truth = {}
        if scene in self._masks:
            mask = self._masks[scene][place]
            truth["segment"] = segment_of(read_indices(mask), one_line(mask))
        if scene in self._poses:
            truth["pose"] = read_matrix(self._poses[scene][place], (4, 4)) @ self._axes
        return truth


def looks_forward(poses: Float[np.ndarray, "M 4 4"]) -> bool:
    """Whether cameras around a scene look along their +z: is the point nearest to all their z axes before them?"""
    position, axis = poses[:, :3, 3], poses[:, :3, 2]
    across = np.eye(3) - axis[:, :, None] * axis[:, None]
    point, *_ = np.linalg.lstsq(across.sum(0), (across @ position[..., None]).sum(0)[:, 0], rcond=1e-6)
    return bool((((point - position) * axis).sum(1)).mean() >= 0)
