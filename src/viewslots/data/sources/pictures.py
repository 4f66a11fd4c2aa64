"""Anybody's pictures: a folder of scene folders, or of videos; masks and cameras where there are files of them.

SOURCE/SCENE/a.jpg  b.jpg ...         the views, sorted by name (or in SCENE/images)
SOURCE/SCENE/a_segment.png            indices of objects, 0 = background; the same index is the same object
SOURCE/SCENE/transforms.json          cameras; then the views are its frames
SOURCE/SCENE.mp4 or SOURCE/SCENE/x.mp4   a scene by its sharp frames
SOURCE/train/SCENE/...                splits, where the folders are named for them
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Integer, UInt8

from viewslots.data.format import MAX_SLOTS, SPLIT_OF_NAME
from viewslots.data.picture_files import RAW_ENDINGS, one_line, picture_size, read_indices, read_rgb
from viewslots.data.sources import nerfstudio, video
from viewslots.data.sources.nerfstudio import Frame
from viewslots.data.sources.source import Facts, Options, Picture, Tree, View, segment_of, split_folders, spread
from viewslots.errors import UserError

ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".heic", ".heif")
NOT_READ = (".tif", ".tiff", ".bmp", ".gif", ".avif", ".jxl", *RAW_ENDINGS)
"""Pictures to people: left out in silence they would be missed."""
MASK = "_segment.png"
VIDEO_VIEWS = 8
"""Of a video, where --views does not say."""


@dataclass(frozen=True)
class SceneFiles:
    """Where the pictures of one scene are."""

    name: str
    pictures: Sequence[Path]
    masks: Sequence[Path]
    frames: Sequence[Frame]
    """Cameras of the pictures, or none at all."""
    video: Path | None = None
    transforms: Path | None = None


class PictureFolders:
    """See Source."""

    def __init__(self, path: Path, options: Options) -> None:
        self._options = options
        self._indices: dict[int, Integer[np.ndarray, "N"]] = {}
        self._numbers: dict[int, list[int]] = {}
        self.notes: list[str] = []
        if path.is_file():
            if path.suffix.lower() not in video.SUFFIXES:
                raise UserError(f"{one_line(path)}: must be a folder of scene folders, or a video")
            self.splits: list[str] | None = None
            self._scenes = [SceneFiles(path.stem, (), (), (), path)]
        else:
            self._tree = Tree(path)
            self._find(path)
        self.names = [scene.name for scene in self._scenes]
        if any(frame.distorted for scene in self._scenes for frame in scene.frames):
            self.notes.append("the cameras have lens distortion (k1, ...), which is not undone")

    def _find(self, root: Path) -> None:
        folders = None if any(map(self._is_scene, self._tree.folders(root))) else self._split_folders()
        self.splits = None if folders is None else []
        self._scenes = []
        for split, folder in ({"": root} if folders is None else folders).items():
            found = list(self._scenes_in(folder))
            self._scenes += found
            if self.splits is not None:
                self.splits += [split] * len(found)

    def _split_folders(self) -> dict[str, Path] | None:
        return split_folders(self._tree, lambda folder: True, lambda name: SPLIT_OF_NAME.get(name.lower()))

    def _is_scene(self, folder: Path) -> bool:
        """Of several videos in a folder, each is a scene; pictures belong to the scene of their folder."""
        endings = [file.suffix.lower() for file in self._tree.files(folder)]
        named = any(entry.name == "images" for entry in self._tree.folders(folder))
        return any(ending in ENDINGS for ending in endings) or (folder / nerfstudio.NAME).exists() or named

    def _scenes_in(self, folder: Path) -> Iterator[SceneFiles]:
        for entry in self._tree.entries(folder):
            path = Path(entry.path)
            if entry.is_dir():
                yield self._scene(path)
            elif path.suffix.lower() in video.SUFFIXES:
                yield SceneFiles(self._tree.name(path.with_suffix("")), (), (), (), path)
            elif path.suffix.lower() in ENDINGS:
                raise UserError(
                    f"{one_line(path)}: a picture outside a scene folder; put the pictures of each scene into a folder "
                    "of its own"
                )

    def _scene(self, folder: Path) -> SceneFiles:
        name, files = self._tree.name(folder), self._tree.files(folder)
        if self._options.cameras and (folder / nerfstudio.NAME) in files:
            frames = nerfstudio.read_transforms(self._tree, folder / nerfstudio.NAME)
            frames = [frames[place] for place in spread(len(frames), self._options.views)]
            pictures = [frame.picture for frame in frames]
            return SceneFiles(name, pictures, self._masks(pictures), frames, None, folder / nerfstudio.NAME)
        videos = [file for file in files if file.suffix.lower() in video.SUFFIXES]
        pictures = self._pictures(files)
        if not pictures and not videos and (folder / "images").is_dir():
            pictures = self._pictures(self._tree.files(folder / "images"))
        if videos and (pictures or len(videos) > 1):
            raise UserError(f"{one_line(videos[-1])}: one video is a scene; keep other pictures and videos elsewhere")
        if not pictures and not videos:
            split = "; for a split, call it train, valid or test" if self._tree.folders(folder) else ""
            raise UserError(
                f"{one_line(folder)}: a scene folder without pictures (PNG, JPEG, WebP, HEIC) or a video{split}"
            )
        if videos:
            return SceneFiles(name, (), (), (), videos[0])
        chosen = [pictures[place] for place in spread(len(pictures), self._options.views)]
        return SceneFiles(name, chosen, self._masks(chosen), ())

    def _pictures(self, files: Sequence[Path]) -> list[Path]:
        views: dict[str, Path] = {}
        for file in files:
            if file.suffix.lower() in NOT_READ:
                raise UserError(f"{one_line(file)}: pictures of this kind are not read; save it as PNG or JPEG")
            if file.suffix.lower() in ENDINGS and not file.name.endswith(MASK):
                if file.stem in views:
                    raise UserError(f"{one_line(file)}: a second picture of this name, beside {views[file.stem].name}")
                views[file.stem] = file
        for file in files:
            if file.name.endswith(MASK) and file.name.removesuffix(MASK) not in views:
                raise UserError(f"{one_line(file)}: a mask without a picture called {file.name.removesuffix(MASK)}")
        return list(views.values())

    def _masks(self, pictures: Sequence[Path]) -> list[Path]:
        """Of all views or of none."""
        if not self._options.masks:
            return []
        masks = [picture.with_name(picture.stem + MASK) for picture in pictures]
        there = [self._tree.require_inside(mask).exists() for mask in masks]
        if any(there) and not all(there):
            raise UserError(
                f"{one_line(masks[there.index(False)])}: no such mask, but other views of the scene have one; add it, "
                "or leave masks out (--no-masks)"
            )
        return masks if all(there) else []

    def files(self) -> Iterator[Path]:
        for scene in self._scenes:
            yield from scene.pictures
            yield from scene.masks
            yield from (file for file in (scene.video, scene.transforms) if file is not None)

    def facts(self, scene: int) -> Facts:
        files = self._scenes[scene]
        if files.video is not None:
            numbers, size = video.choose_frames(files.video, self._options.views or VIDEO_VIEWS)
            self._numbers[scene] = numbers
            name = one_line(files.video)
            return Facts([Picture(f"{name}, frame {number}", size) for number in numbers], frozenset({"image"}))
        pictures = [Picture(one_line(picture), picture_size(picture)) for picture in files.pictures]
        keys, slots = {"image"}, 0
        if files.masks:
            keys.add("segment")
            slots = self._number_objects(scene, files.masks)
        if files.frames:
            posed = [frame.pose is not None for frame in files.frames]
            if any(posed) and not all(posed):
                raise UserError(f"{files.frames[0].where}: only some frames have a transform_matrix")
            keys |= {"pose"} if all(posed) else set()
            keys |= {"intrinsics"} if all(frame.has_intrinsics for frame in files.frames) else set()
        return Facts(pictures, frozenset(keys), slots)

    def _number_objects(self, scene: int, masks: Sequence[Path]) -> int:
        """Indices stay as they are; numbers too large for that, of 16-bit masks, count up from 1 over all views."""
        found = np.unique(np.concatenate([np.unique(read_indices(mask)) for mask in masks]))
        if found[-1] <= MAX_SLOTS:
            return int(found[-1])
        self._indices[scene] = found = found[found > 0]
        if len(found) > MAX_SLOTS:
            raise UserError(f"{one_line(masks[0])}: {len(found)} objects in this scene, more than {MAX_SLOTS}")
        return len(found)

    def views(self, scene: int) -> Iterator[View]:
        files = self._scenes[scene]
        if files.video is not None:
            for image in video.read_frames(files.video, self._numbers[scene]):
                yield {"image": image}
            return
        for place, picture in enumerate(files.pictures):
            view = {"image": read_rgb(picture)}
            if files.masks:
                view["segment"] = self._segment(scene, files.masks[place])
            if files.frames:
                frame = files.frames[place]
                if frame.pose is not None:
                    view["pose"] = frame.pose
                if frame.has_intrinsics:
                    view["intrinsics"] = frame.intrinsics(*view["image"].shape[:2])
            yield view

    def objects(self, scene: int) -> None:
        """Folders say nothing of objects but their masks."""

    def close(self) -> None:
        """No file is kept open."""

    def _segment(self, scene: int, mask: Path) -> UInt8[np.ndarray, "H W"]:
        indices = read_indices(mask)
        if scene in self._indices:
            indices = np.where(indices == 0, 0, 1 + np.searchsorted(self._indices[scene], indices))
        return segment_of(indices, one_line(mask))
