"""Rendered public data sets whose scenes are picture files: MOVi (Kubric), CLEVRTEX, CLEVR3D."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from viewslots.data.exchange.npz import NpzFile
from viewslots.data.picture_files import one_line, read_indices
from viewslots.data.sources.source import (
    Options,
    PictureFiles,
    Properties,
    Tree,
    View,
    all_told,
    largest_index,
    segment_of,
    split_folders,
    spread,
)
from viewslots.errors import UserError
from viewslots.files import Fields, read_json, shown
from viewslots.scenes.vectors import camera_poses


class _IndexMasks(PictureFiles):
    """Masks hold indices, 0 = background, and object k is k + 1 in all views."""

    def __init__(self, path: Path, options: Options) -> None:
        super().__init__(path, options)
        self._masks: list[list[Path]] = []
        self._objects: dict[int, int] = {}

    def _beside(self, scene: int) -> Iterator[Path]:
        yield from self._masks[scene]

    def _counted(self, scene: int) -> int | None:
        """How many objects the source says there are."""
        return None

    def _known(self, scene: int) -> tuple[set[str], int]:
        if not self._masks[scene]:
            return set(), 0
        counted = self._counted(scene)
        slots = max(largest_index(self._masks[scene]), counted or 0)
        if counted is None:
            return {"segment"}, slots
        self._objects[scene] = slots
        return {"segment", "num_objects"}, slots

    def _truth(self, scene: int, place: int, height: int, width: int) -> View:
        if not self._masks[scene]:
            return {}
        mask = self._masks[scene][place]
        truth = {"segment": segment_of(read_indices(mask), one_line(mask))}
        return truth | ({"num_objects": np.array(self._objects[scene])} if scene in self._objects else {})


MOVI_PROPERTIES = {
    "color": ("color_label", "color"),
    "shape": ("shape",),
    "size": ("size_label",),
    "material": ("material",),
}
METADATA = "metadata.json"
MOVI_PICTURE = re.compile(r"rgba_(\d{5})\.png")
MOST_FRAMES = 1024


class Movi(_IndexMasks):
    """Scene folders as Kubric's workers write them; see Source.

    [train/]SCENE/rgba_FFFFF.png   segmentation_FFFFF.png   metadata.json (camera, instances)
    """

    def __init__(self, path: Path, options: Options) -> None:
        super().__init__(path, options)
        self._frames: list[int] = []
        self._cameras: dict[int, tuple[Float64[np.ndarray, "M 4 4"], float]] = {}
        alone = (path / METADATA).is_file()
        folders = None if alone else split_folders(self._tree, self._holds_scenes)
        self.splits = None if folders is None else []
        for split, folder in ({"": path} if folders is None else folders).items():
            scenes = [path] if alone else [scene for scene in self._tree.folders(folder) if self._is_scene(scene)]
            for scene in scenes:
                self._add(scene, path.resolve().name if alone else self._tree.name(scene))
            if self.splits is not None:
                self.splits = [*self.splits, *([split] * len(scenes))]

    def _is_scene(self, folder: Path) -> bool:
        return any(entry.name == METADATA or entry.name.startswith("rgba_") for entry in self._tree.entries(folder))

    def _holds_scenes(self, folder: Path) -> bool:
        return any(map(self._is_scene, self._tree.folders(folder)))

    def _add(self, folder: Path, name: str) -> None:
        present = {file.name for file in self._tree.files(folder)}
        frames = sum(MOVI_PICTURE.fullmatch(file) is not None for file in present)
        needed = [METADATA, *(f"rgba_{frame:05d}.png" for frame in range(max(1, frames)))]
        for file in needed:
            if file not in present:
                raise UserError(f"{one_line(folder / file)}: missing, but other files of the scene are there")
        chosen = spread(frames, self._options.views)
        masks = [folder / f"segmentation_{frame:05d}.png" for frame in chosen]
        there = self._options.masks and self._present(masks, "mask", "--no-masks")
        self._pictures.append([folder / f"rgba_{frame:05d}.png" for frame in chosen])
        self._masks.append(masks if there else [])
        self._frames.append(frames)
        self.names.append(name)

    def _beside(self, scene: int) -> Iterator[Path]:
        yield from super()._beside(scene)
        yield self._pictures[scene][0].with_name(METADATA)

    def _known(self, scene: int) -> tuple[set[str], int]:
        path = self._pictures[scene][0].with_name(METADATA)
        about, frames = read_json(path), self._frames[scene]
        said = Fields(Fields(about, path).mapping("metadata"), path).whole("num_frames", 1, MOST_FRAMES)
        if said != frames:
            raise UserError(f"{one_line(path)}: says {said} frames, but there are {frames}")
        instances = about.get("instances")
        self._told = len(instances) if isinstance(instances, list) else None
        keys, slots = super()._known(scene)
        if "camera" not in about or not self._options.cameras:
            return keys, slots
        lens = Fields(about, path).mapping("camera")
        chosen = spread(frames, self._options.views)
        poses = np.stack([_pose(lens, frame, path) for frame in chosen])
        self._cameras[scene] = poses, _number(lens, "focal_length", path) / _number(lens, "sensor_width", path)
        return keys | {"pose", "intrinsics"}, slots

    def _counted(self, scene: int) -> int | None:
        return self._told

    def objects(self, scene: int) -> Sequence[Properties] | None:
        if not self._masks[scene]:
            return None
        return all_told(read_json(self._pictures[scene][0].with_name(METADATA)).get("instances"), MOVI_PROPERTIES)

    def _truth(self, scene: int, place: int, height: int, width: int) -> View:
        truth = super()._truth(scene, place, height, width)
        if scene not in self._cameras:
            return truth
        poses, focal = self._cameras[scene]
        intrinsics = np.array([focal * width, focal * width, width / 2, height / 2])
        return {**truth, "pose": poses[place], "intrinsics": intrinsics}


def _pose(lens: Mapping[str, Any], frame: int, path: Path) -> Float64[np.ndarray, "4 4"]:
    pose = np.eye(4)
    pose[:3, :3] = rotation(_row(lens, "quaternions", frame, 4, path), path)
    pose[:3, 3] = _row(lens, "positions", frame, 3, path)
    return pose


def _number(raw: Mapping[str, Any], name: str, path: Path) -> float:
    value = raw.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise UserError(f"{one_line(path)}: camera: {name} must be a number above 0, but is {shown(value)}")
    return float(value)


def _row(raw: Mapping[str, Any], name: str, frame: int, length: int, path: Path) -> Float64[np.ndarray, "n"]:
    rows = raw.get(name)
    row = rows[frame] if isinstance(rows, list) and frame < len(rows) else None
    if not isinstance(row, list) or len(row) != length or not all(type(value) in (int, float) for value in row):
        raise UserError(f"{one_line(path)}: camera: {name} must have {length} numbers for frame {frame}")
    return np.array(row, np.float64)


def rotation(quaternion: Float64[np.ndarray, "4"], path: Path) -> Float64[np.ndarray, "3 3"]:
    """Of w, x, y, z: Kubric's cameras look along -z with y up, as ours do."""
    length = np.sqrt((quaternion**2).sum())
    if not abs(length - 1) < 0.01:
        raise UserError(f"{one_line(path)}: camera: a quaternion of length {length:g}")
    w, x, y, z = quaternion / length
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


CLEVRTEX_PICTURE = re.compile(r"CLEVRTEX_(?P<variant>[a-z]+)_(?P<number>\d{6})\.png")
MOST_DEPTH = 6
SHARES = {"test1": (0.0, 0.1), "valid": (0.1, 0.2), "train": (0.2, 1.0)}
TEST_ONLY = "outd"
"""The variant of unseen materials and shapes, which has no splits."""


class ClevrTex(_IndexMasks):
    """One view a scene; see Source.

    **/CLEVRTEX_VARIANT_NNNNNN.png   ..._flat.png, index masks   ....json, the objects
    """

    def __init__(self, path: Path, options: Options) -> None:
        super().__init__(path, options)
        found: dict[int, Path] = {}
        variants: dict[str, Path] = {}
        for file in walk(self._tree, path, MOST_DEPTH):
            if match := CLEVRTEX_PICTURE.fullmatch(file.name):
                variants.setdefault(match["variant"], file)
                if len(variants) > 1:
                    both = " and ".join(variants)
                    raise UserError(f"{one_line(path)}: holds the variants {both}; import one folder at a time")
                if int(match["number"]) in found:
                    raise UserError(f"{one_line(file)}: a second picture of this number")
                found[int(match["number"])] = file
        for number in sorted(found):
            picture = found[number]
            masks = [picture.with_name(f"{picture.stem}_flat.png")]
            there = options.masks and self._present(masks, "mask", "--no-masks")
            self._pictures.append([picture])
            self._masks.append(masks if there else [])
            self.names.append(picture.stem)
        self._has_json = bool(found) and all(self._json(scene).is_file() for scene in range(len(found)))
        # Other variants keep a colour that the materials cover.
        self._names = {
            name: (name,) for name in ("color", "shape", "size", "material") if name != "color" or "vbg" in variants
        }
        cuts = {split: [int(share * len(found)) for share in shares] for split, shares in SHARES.items()}
        where = {place: split for split, (low, high) in cuts.items() for place in range(low, high)}
        self.splits = ["test1" if TEST_ONLY in variants else where[place] for place in range(len(found))]

    def _json(self, scene: int) -> Path:
        return self._tree.require_inside(self._pictures[scene][0].with_suffix(".json"))

    def _beside(self, scene: int) -> Iterator[Path]:
        yield from super()._beside(scene)
        if self._has_json:
            yield self._json(scene)

    def _counted(self, scene: int) -> int | None:
        if not self._has_json:
            return None
        objects = read_json(self._json(scene)).get("objects")
        if not isinstance(objects, list):
            raise UserError(f"{one_line(self._json(scene))}: objects must be a list")
        return len(objects)

    def objects(self, scene: int) -> Sequence[Properties] | None:
        if not self._has_json or not self._masks[scene]:
            return None
        return all_told(read_json(self._json(scene)).get("objects"), self._names)


def _are_kinds(values: NDArray[Any], shapes: NDArray[Any]) -> bool:
    """Whole numbers, one an object."""
    return bool(values.shape == shapes.shape and values.ndim == 2 and np.isin(values % 1, 0).all())


def walk(tree: Tree, folder: Path, depth: int) -> Iterator[Path]:
    """Files of a folder and below."""
    yield from tree.files(folder)
    if depth:
        for below in tree.folders(folder):
            yield from walk(tree, below, depth - 1)


CLEVR3D_PICTURE = re.compile(r"img_(\d{1,7})_(\d{1,3})\.png")
CLEVR3D_SPLITS = {"train": range(70_000), "valid": range(70_000, 75_000), "test1": range(85_000, 100_000)}
CLEVR3D_SCENES = 100_000
FOCAL_SHARE = 35 / 32
"""Focal length over width: CLEVR's own camera."""


class Clevr3d(_IndexMasks):
    """Cameras look at the origin; see Source.

    images/img_S_V.png   masks/masks_S_V.png, index masks   metadata.npz: camera_pos [S,V,3], shape [S,K], 0 = none
    """

    def __init__(self, path: Path, options: Options) -> None:
        super().__init__(path, options)
        self._cameras: Float64[np.ndarray, "S V 3"] | None = None
        self._counts: Sequence[int] | None = None
        self._kinds: dict[str, NDArray[Any]] = {}
        if (path / "metadata.npz").is_file():
            self._read_metadata(self._tree.require_inside(path / "metadata.npz"))
        if not (path / "images").is_dir():
            raise UserError(f"{one_line(path / 'images')}: no such folder; CLEVR3D keeps its pictures there")
        views: dict[int, dict[int, Path]] = {}
        for file in self._tree.files(path / "images"):
            if match := CLEVR3D_PICTURE.fullmatch(file.name):
                views.setdefault(int(match[1]), {})[int(match[2])] = file
        self._numbers = sorted(views)
        count = max((max(found) for found in views.values()), default=-1) + 1
        self._chosen = spread(count, options.views)
        for number in self._numbers:
            self._add(path, number, views[number], count)
        if self._numbers and self._numbers[-1] == CLEVR3D_SCENES - 1:
            own = {number: split for split, numbers in CLEVR3D_SPLITS.items() for number in numbers}
            self.splits = [own.get(number, "") for number in self._numbers]

    def _add(self, path: Path, number: int, found: Mapping[int, Path], count: int) -> None:
        for view in range(count):
            if view not in found:
                missing = one_line(path / "images" / f"img_{number}_{view}.png")
                raise UserError(f"{missing}: missing; other scenes have {count} views")
        if self._cameras is not None and not (number < len(self._cameras) and count <= self._cameras.shape[1]):
            raise UserError(f"{one_line(path / 'metadata.npz')}: has no camera for img_{number}_{count - 1}.png")
        self._pictures.append([found[view] for view in self._chosen])
        masks = [path / "masks" / f"masks_{number}_{view}.png" for view in self._chosen]
        there = self._options.masks and self._present(masks, "mask", "--no-masks")
        self._masks.append(masks if there else [])
        self.names.append(f"img_{number}")

    def _read_metadata(self, path: Path) -> None:
        with NpzFile(path) as file:
            if "camera_pos" in file.keys and self._options.cameras:
                cameras = file.open("camera_pos").everything().astype(np.float64)
                if cameras.ndim != 3 or cameras.shape[2] != 3:
                    raise UserError(f"{one_line(path)}: camera_pos must be [S,V,3], not {list(cameras.shape)}")
                self._cameras = cameras
            if "shape" in file.keys:
                shapes = file.open("shape").everything()
                if shapes.ndim < 2:
                    raise UserError(f"{one_line(path)}: shape must be [S,K], not {list(shapes.shape)}")
                self._counts = (shapes.reshape(*shapes.shape[:2], -1) > 0).any(2).sum(1).tolist()
                self._kinds = {"shape": shapes}
            for name in ("color", "size", "material"):
                with suppress(UserError):  # words, say: no import fails for what probes alone would read
                    if name in file.keys and self._kinds:
                        self._kinds[name] = file.open(name).everything()
            self._kinds = {
                name: kinds for name, kinds in self._kinds.items() if _are_kinds(kinds, self._kinds["shape"])
            }

    def files(self) -> Iterator[Path]:
        yield from super().files()
        if self._cameras is not None or self._counts is not None:
            yield self._tree.root / "metadata.npz"

    def objects(self, scene: int) -> Sequence[Properties] | None:
        """Kinds are numbers in this file, and stay so: as words, since they have no order."""
        number, count = self._numbers[scene], self._counted(scene)
        if not self._masks[scene] or not self._kinds or count is None:
            return None
        return [{name: str(int(kinds[number, k])) for name, kinds in self._kinds.items()} for k in range(count)]

    def _counted(self, scene: int) -> int | None:
        number = self._numbers[scene]
        return None if self._counts is None or number >= len(self._counts) else self._counts[number]

    def _known(self, scene: int) -> tuple[set[str], int]:
        keys, slots = super()._known(scene)
        return keys | ({"camera", "pose", "intrinsics"} if self._cameras is not None else set()), slots

    def _truth(self, scene: int, place: int, height: int, width: int) -> View:
        truth = dict(super()._truth(scene, place, height, width))
        if self._cameras is not None:
            position = self._cameras[self._numbers[scene], self._chosen[place]]
            if not (np.isfinite(position).all() and position.any()):
                raise UserError(f"{self.names[scene]}: its camera_pos is {position.tolist()}")
            truth["camera"] = position
            truth["pose"] = camera_poses(position[None, None])[0, 0]
            truth["intrinsics"] = np.array([FOCAL_SHARE * width, FOCAL_SHARE * width, width / 2, height / 2])
        return truth
