"""What an import asks of a source of scenes, and what all sources share: folders that nobody vouches for."""

import importlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Float64, Integer, UInt8
from numpy.typing import NDArray

from viewslots.data.format import MAX_SLOTS, SPLIT_NAME, SPLIT_OF_NAME
from viewslots.data.picture_files import one_line, picture_size, read_indices, read_rgb
from viewslots.data.sources.kinds import KINDS
from viewslots.errors import UserError
from viewslots.files import open_regular, plain_errors, shown
from viewslots.types import BACKGROUND

View = Mapping[str, NDArray[Any]]
"""What is known of one view, by keys of the format without the axes of scenes and views: image [H,W,3] at least.

`num_objects`, a number of the scene, is in each of them."""

OPENCV_AXES = np.diag([1.0, -1.0, -1.0, 1.0])
"""Poses whose cameras look along +z with y down become ours when multiplied by this from the right."""


Properties = Mapping[str, str | float | list[float]]
"""Of one object, by `color`, `shape`, `size` and `material`: a word for one of several kinds, or numbers."""


class Picture(NamedTuple):
    """A view before it is read: how messages call it, its height and its width."""

    name: str
    size: tuple[int, int]


@dataclass(frozen=True)
class Facts:
    """What is known of a scene before its pictures are read."""

    pictures: Sequence[Picture]
    """Of every view that `views` will answer."""
    keys: frozenset[str]
    """What each of its views has, image among them."""
    slots: int = 0
    """Indices of objects are below this."""


@dataclass(frozen=True)
class Options:
    """What a source may be told."""

    views: int | None = None
    """At most so many views of a scene, evenly spread."""
    resolution: str | None = None
    """Of sources that come in several."""
    background: int | None = None
    """Grey level of the background in masks by colours."""
    masks: bool = True
    cameras: bool = True
    """Whether these are wanted at all."""
    per_view_masks: bool = False
    """Whether masks number the objects of each view alone."""


class Source(Protocol):
    """Scenes in a fixed order; an import asks for them in that order, and may leave some out."""

    names: Sequence[str]
    """Of the scenes, for messages and for --split."""
    splits: Sequence[str] | None
    """The source's own split of each scene; "" for a scene that belongs to none; None: it has no splits."""
    notes: Sequence[str]
    """What a user should know about how it was read."""

    def __init__(self, path: Path, options: Options) -> None: ...

    def files(self) -> Iterator[Path]:
        """All that is read; content and names decide what the data set will be."""
        ...

    def facts(self, scene: int) -> Facts: ...

    def views(self, scene: int) -> Iterator[View]:
        """One after another: no more than a picture needs to be in memory."""
        ...

    def objects(self, scene: int) -> Sequence[Properties] | None:
        """What is told of each object, in the order of the indices; None: nothing. Asked for after `views`."""
        ...

    def close(self) -> None: ...


def open_source(kind: str, path: Path, options: Options) -> Source:
    if kind not in KINDS:
        raise UserError(f"no kind of source {shown(kind)}; choose one of {', '.join(KINDS)}")
    if not path.exists():
        raise UserError(f"{one_line(path)}: no such file or folder")
    for option in ("resolution", "background", "per_view_masks"):
        if getattr(options, option) not in (None, False) and option not in KINDS[kind].options:
            raise UserError(f"--{option.replace('_', '-')}: the kind {kind} has no such choice; leave it out")
    module, name = KINDS[kind].place.split(":")
    source: Source = getattr(importlib.import_module(module), name)(path, options)
    if not source.names:
        raise UserError(f"{one_line(path)}: no scenes of the kind {kind} in it (it reads {KINDS[kind].about})")
    return source


WORD, MOST_NUMBERS = 80, 8
"""Longest name of a property's kind, and most numbers of a property, that are kept."""

HIDDEN = (".", "__MACOSX")
"""How files begin that systems leave behind."""


class Tree:
    """The files of a folder. Links that lead out of it are refused, hidden files left alone."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._real = os.path.realpath(root)
        if not root.is_dir():
            raise UserError(f"{one_line(root)}: must be a folder")

    def entries(self, folder: Path) -> list[os.DirEntry[str]]:
        self.require_inside(folder)
        with plain_errors("reading", folder), os.scandir(folder) as found:
            entries = sorted((one for one in found if not one.name.startswith(HIDDEN)), key=lambda one: one.name)
        for entry in entries:
            if entry.is_symlink():
                self.require_inside(Path(entry.path))
        return entries

    def files(self, folder: Path) -> list[Path]:
        return [Path(entry.path) for entry in self.entries(folder) if not entry.is_dir()]

    def folders(self, folder: Path) -> list[Path]:
        return [Path(entry.path) for entry in self.entries(folder) if entry.is_dir()]

    def require_inside(self, path: Path) -> Path:
        real = os.path.realpath(path)
        if os.path.commonpath([real, self._real]) != self._real:
            raise UserError(f"{one_line(path)}: leads to a place outside {one_line(self.root)}, and is not followed")
        return path

    def name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()


def own_split(name: str) -> str | None:
    """The split that a folder or file is named for: `train`, `clevr_567_test`, `room-val`, but not `test1-large`."""
    last = name.lower().replace("-", "_").rpartition("_")[2]
    return SPLIT_OF_NAME.get(name.lower()) or SPLIT_OF_NAME.get(last)


def split_folders(
    tree: Tree, holds_scenes: Callable[[Path], bool], own_split: Callable[[str], str | None] = own_split
) -> dict[str, Path] | None:
    """Split -> its folder, where the folders of a source are named for splits; None where it has none of its own."""
    folders = [folder for folder in tree.folders(tree.root) if holds_scenes(folder)]
    if not any(own_split(folder.name) for folder in folders):
        return None
    splits: dict[str, Path] = {}
    for folder in folders:
        name = own_split(folder.name) or folder.name
        if not SPLIT_NAME.fullmatch(name) or name in splits:
            raise UserError(f"{one_line(folder)}: beside folders named for splits, but no name for another split")
        splits[name] = folder
    usual = list(dict.fromkeys(SPLIT_OF_NAME.values()))
    return dict(sorted(splits.items(), key=lambda item: (*usual, item[0]).index(item[0])))


def spread(count: int, most: int | None) -> list[int]:
    """At most `most` of 0..count-1: the middles of as many equal parts."""
    if most is None or most >= count:
        return list(range(count))
    return [(2 * place + 1) * count // (2 * most) for place in range(most)]


def segment_of(indices: Integer[np.ndarray, "H W"], name: str) -> UInt8[np.ndarray, "H W"]:
    """Index masks in which 0 is the background and object k is k + 1."""
    if indices.min(initial=0) < 0 or indices.max(initial=0) > MAX_SLOTS:
        raise UserError(f"{name}: has the index {shown(int(indices.max()))}; objects are numbered 1..{MAX_SLOTS}")
    return np.where(indices == 0, BACKGROUND, indices - indices.dtype.type(1)).astype(np.uint8)


TEXT_LIMIT = 2**16


def read_matrix(path: Path, *shapes: tuple[int, int]) -> Float64[np.ndarray, "r c"]:
    """A matrix of numbers in a text file, a row a line."""
    with open_regular(path) as file, plain_errors("reading", path):
        text = file.read(TEXT_LIMIT + 1)
    try:
        rows = [
            [float(word) for word in line.replace(b",", b" ").split()] for line in text.splitlines() if line.split()
        ]
        matrix = np.array(rows, np.float64)
    except ValueError:
        matrix = np.empty((0, 0))
    if matrix.shape not in shapes or not np.isfinite(matrix).all():
        wanted = " or ".join(f"{rows}x{columns}" for rows, columns in shapes)
        raise UserError(f"{one_line(path)}: must hold a matrix of {wanted} finite numbers")
    return matrix


class PictureFiles:
    """A Source in which every view is a picture file. Kinds say which files there are, and read what lies beside them.

    A kind fills `_pictures` and `names` and answers the methods below.
    """

    splits: Sequence[str] | None = None

    def __init__(self, path: Path, options: Options) -> None:
        self._tree = Tree(path)
        self._options = options
        self._pictures: list[list[Path]] = []
        self.names: list[str] = []
        self.notes: list[str] = []

    def _beside(self, scene: int) -> Iterator[Path]:
        """Other files of the scene that are read."""
        return iter(())

    def _known(self, scene: int) -> tuple[set[str], int]:
        """Keys besides image, and how many objects there are room for."""
        return set(), 0

    def _truth(self, scene: int, place: int, height: int, width: int) -> View:
        """What these keys are for one view."""
        return {}

    def files(self) -> Iterator[Path]:
        for scene, pictures in enumerate(self._pictures):
            yield from pictures
            yield from self._beside(scene)

    def facts(self, scene: int) -> Facts:
        pictures = [Picture(one_line(file), picture_size(file)) for file in self._pictures[scene]]
        keys, slots = self._known(scene)
        return Facts(pictures, frozenset({"image", *keys}), slots)

    def views(self, scene: int) -> Iterator[View]:
        for place, file in enumerate(self._pictures[scene]):
            image = read_rgb(file)
            yield {"image": image, **self._truth(scene, place, *image.shape[:2])}

    def objects(self, scene: int) -> Sequence[Properties] | None:
        return None

    def close(self) -> None:
        """No file is kept open."""

    def _present(self, files: Sequence[Path], what: str, option: str) -> bool:
        """Whether a scene has such files: for all views or for none."""
        there = [self._tree.require_inside(file).is_file() for file in files]
        if any(there) and not all(there):
            missing = one_line(files[there.index(False)])
            raise UserError(
                f"{missing}: no such {what}, but other views of the scene have one; add it, or say {option}"
            )
        return all(there)


def all_told(items: object, names: Mapping[str, Sequence[str]]) -> list[Properties] | None:
    """What a list in a foreign file says of objects; None where it says nothing."""
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        return None
    found = [_told(item, names) for item in items]
    return found if any(found) else None


def _told(item: Mapping[str, Any], names: Mapping[str, Sequence[str]]) -> Properties:
    """Under each name of ours, the first of the source's names with a word or numbers."""
    found: dict[str, str | float | list[float]] = {}
    for name, keys in names.items():
        for value in (item.get(key) for key in keys):
            if (plain := _plain(value)) is not None:
                found[name] = plain
                break
    return found


def _plain(value: object) -> str | float | list[float] | None:
    if isinstance(value, str):
        return value[:WORD] or None
    if type(value) in (int, float) and math.isfinite(value):  # type: ignore[arg-type]
        return float(value)  # type: ignore[arg-type]
    if isinstance(value, list) and 1 <= len(value) <= MOST_NUMBERS:
        numbers = [_plain(one) for one in value]
        return (
            [one for one in numbers if isinstance(one, float)] if all(type(one) is float for one in numbers) else None
        )
    return None


def largest_index(masks: Sequence[Path]) -> int:
    return max(int(read_indices(mask).max(initial=0)) for mask in masks)
