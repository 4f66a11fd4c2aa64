"""uORF and uOCF: one flat folder, a picture with its camera, and masks by colours.

    [NAME_train/]IIIII_scSSSS_azVV[_elVV].png   ..._RT.txt, camera to world   ..._mask.png
    ..._intrinsics.txt                          of uOCF: relative to the size of the picture

A colour is an object, the same in all views. The background is the second darkest in uORF, the darkest in uOCF, or
nearest to a level that the user gives.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Integer
from numpy.typing import NDArray

from viewslots.data.format import MAX_SLOTS
from viewslots.data.picture_files import STORED_BYTES, damage, file_bytes, one_line, opened, require_pixels
from viewslots.data.sources.source import (
    OPENCV_AXES,
    Options,
    PictureFiles,
    View,
    read_matrix,
    split_folders,
    spread,
)
from viewslots.errors import UserError
from viewslots.types import BACKGROUND

OTHERS = "mask|mask_for_moving|mask_for_bg|mask_for_providing_bg|moved|changed|providing_bg|depth"
VIEW = re.compile(rf".*_sc(?P<scene>\d{{4,6}})_(?!.*(?:{OTHERS})\.png$).+\.png")
"""Of all pictures of a scene, those of the scene itself."""
OF_UORF = re.compile(r".*(_azi_rot\.txt|_depth\.npy|_az\d+_el\d+\.png)")
OF_UOCF = re.compile(r".*_intrinsics\.txt|\d{5}_sc\d{4}_az\d\d(_dist\d)?\.png")
"""Names of files that only one of the two has."""
FOCAL_SHARES = (350 / 320, 350 / 240)
"""Of width and height, where no file says."""


class Uorf(PictureFiles):
    """See Source."""

    def __init__(self, path: Path, options: Options) -> None:
        super().__init__(path, options)
        folders = split_folders(self._tree, lambda folder: any(map(VIEW.fullmatch, self._names(folder))))
        self.splits = None if folders is None else []
        of_uorf = of_uocf = False
        for split, folder in ({"": path} if folders is None else folders).items():
            scenes: dict[int, list[Path]] = {}
            names = self._names(folder)
            for name in names:
                if match := VIEW.fullmatch(name):
                    scenes.setdefault(int(match["scene"]), []).append(folder / name)
                of_uorf |= OF_UORF.fullmatch(name) is not None
                of_uocf |= OF_UOCF.fullmatch(name) is not None
            for scene in sorted(scenes):
                views = scenes[scene]
                self._pictures.append([views[place] for place in spread(len(views), options.views)])
                self.names.append(self._tree.name(folder / f"sc{scene:04d}"))
            if self.splits is not None:
                self.splits = [*self.splits, *([split] * len(scenes))]
        self._of_uorf = of_uorf or not of_uocf
        masks = [self._paths(scene, "_mask.png", "mask", "--no-masks") for scene in range(len(self.names))]
        self._masks = masks if options.masks else [[] for _ in masks]
        poses = [self._paths(scene, "_RT.txt", "pose", "--no-cameras") for scene in range(len(self.names))]
        self._poses = poses if options.cameras else [[] for _ in poses]
        lenses = [self._paths(scene, "_intrinsics.txt", "file", "--no-cameras") for scene in range(len(self.names))]
        self._lenses = lenses if options.cameras else [[] for _ in lenses]
        if any(self._masks) and options.background is None:
            kind = "second darkest colour of a scene (uORF)" if self._of_uorf else "darkest colour of a scene (uOCF)"
            self.notes.append(f"the background of the masks is the {kind}; --background LEVEL says otherwise")

    def _names(self, folder: Path) -> list[str]:
        return [file.name for file in self._tree.files(folder)]

    def _paths(self, scene: int, ending: str, what: str, option: str) -> list[Path]:
        files = [picture.with_name(picture.stem + ending) for picture in self._pictures[scene]]
        return files if self._present(files, what, option) else []

    def _beside(self, scene: int) -> Iterator[Path]:
        for files in (self._masks, self._poses, self._lenses):
            yield from files[scene]

    def _known(self, scene: int) -> tuple[set[str], int]:
        keys = {"pose", "intrinsics"} if self._poses[scene] else set()
        if not self._masks[scene]:
            return keys, 0
        return keys | {"segment", "num_objects"}, len(self._objects(scene))

    def _objects(self, scene: int) -> Integer[np.ndarray, "K"]:
        """The colours of the objects of a scene, from dark to light, over all its views."""
        colours = np.unique(np.concatenate([np.unique(read_colours(mask)) for mask in self._masks[scene]]))
        levels = np.unique(grey(colours))
        if self._options.background is not None:
            background = levels[np.abs(levels - self._options.background).argmin()]
        else:
            background = levels[1 if self._of_uorf and len(levels) > 1 else 0]
        objects = colours[grey(colours) != background]
        if len(objects) > MAX_SLOTS:
            raise UserError(
                f"{one_line(self._masks[scene][0])}: {len(objects)} colours in the masks of this scene, more than "
                f"{MAX_SLOTS}; masks must not be smoothed"
            )
        return objects[np.argsort(grey(objects), kind="stable")]

    def views(self, scene: int) -> Iterator[View]:
        self._found = self._objects(scene) if self._masks[scene] else np.empty(0, int)
        return super().views(scene)

    def _truth(self, scene: int, place: int, height: int, width: int) -> View:
        truth: dict[str, NDArray[Any]] = {}
        if self._masks[scene]:
            colours = read_colours(self._masks[scene][place])
            segment = np.full(colours.shape, BACKGROUND, np.uint8)
            for number, colour in enumerate(self._found):
                segment[colours == colour] = number
            truth |= {"segment": segment, "num_objects": np.array(len(self._found))}
        if self._poses[scene]:
            truth["pose"] = read_matrix(self._poses[scene][place], (4, 4)) @ OPENCV_AXES
            fx, fy, cx, cy = *FOCAL_SHARES, 0.0, 0.0
            if self._lenses[scene]:
                lens = read_matrix(self._lenses[scene][place], (3, 3), (4, 4))
                fx, fy, cx, cy = lens[0, 0], lens[1, 1], lens[0, 2], lens[1, 2]
            truth["intrinsics"] = np.array([fx * width, fy * height, (cx + 1) / 2 * width, (cy + 1) / 2 * height])
        return truth


def read_colours(path: Path) -> Integer[np.ndarray, "H W"]:
    """Colours as whole numbers, red first."""
    name = one_line(path)
    with damage(name), opened(file_bytes(path, name, STORED_BYTES), name) as image:
        require_pixels(image, name)
        red, green, blue = np.moveaxis(np.asarray(image.convert("RGB"), np.int64), 2, 0)
    return red << 16 | green << 8 | blue


def grey(colours: Integer[np.ndarray, "*n"]) -> Integer[np.ndarray, "*n"]:
    """As pillow turns colours to grey."""
    red, green, blue = colours >> 16, colours >> 8 & 255, colours & 255
    return red * 19595 + green * 38470 + blue * 7471 + 0x8000 >> 16
