"""A data set on disk, opened: a folder with meta.json and `<split>/<key>.npy`, memory-mapped and never executed."""

import ast
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from viewslots.data.format import DESCRIPTIONS, KEYS, META, DatasetPlan, Meta, Part, Size, read_meta
from viewslots.data.sharded import Shard, ShardedArray, StoredArray, forget_maps
from viewslots.errors import UserError
from viewslots.files import allowed_files, open_regular, plain_errors, printable, room_beside, shown
from viewslots.types import BACKGROUND, SLOT_KEYS, Pictures

MAKING = "making.json"
"""Present while a data set is being written: its folder is not a data set yet."""

SHARD_NAME = re.compile(r"\d{5}")

LINE_LIMIT = 2**20
"""Longest description of one scene, in bytes."""


@dataclass(frozen=True, repr=False)
class SplitArrays:
    """The arrays of one split, each [S, ...] as in format.KEYS; memory maps when they come from a store."""

    name: str
    size: Size
    arrays: Mapping[str, StoredArray]
    per_view_masks: bool = False
    """See DatasetPlan."""
    scene_names: Sequence[str] | None = None
    """Where somebody asked the store for them."""

    @classmethod
    def from_pictures(cls, name: str, pictures: Pictures) -> "SplitArrays":
        """The same interface over pictures in memory."""
        scenes, views, height, width, _ = pictures.image.shape
        arrays = {key: getattr(pictures, key) for key in pictures.keys()}  # noqa: SIM118
        return cls(name, Size(scenes, views, _slots(arrays), height, width), arrays)

    def __repr__(self) -> str:
        size = self.size
        return (
            f"SplitArrays({self.name!r}: {size.scenes} scenes, {size.views} views, {size.height}x{size.width}, "
            f"{', '.join(self.arrays)})"
        )

    @property
    def view_counts(self) -> Int[np.ndarray, "S"]:
        """How many views each scene has."""
        if "num_views" not in self:
            return np.full(self.size.scenes, self.size.views)
        counts = np.asarray(self["num_views"]).astype(int)
        wrong = np.flatnonzero((counts < 1) | (counts > self.size.views))
        if len(wrong):
            raise UserError(f"split {self.name}, scene {wrong[0]}: num_views is not in 1..{self.size.views}")
        return counts

    def __len__(self) -> int:
        return self.size.scenes

    def __contains__(self, key: str) -> bool:
        return key in self.arrays

    def __getitem__(self, key: str) -> StoredArray:
        if key not in self.arrays:
            raise UserError(f"split {self.name} has no {shown(key)}; it has {', '.join(self.arrays)}")
        return self.arrays[key]


def _slots(arrays: Mapping[str, NDArray[Any]]) -> int:
    """The largest number of objects that is known of."""
    for key in SLOT_KEYS:
        if key in arrays:
            return arrays[key].shape[2]
    if "num_objects" in arrays:
        return int(arrays["num_objects"].max())
    labels = np.unique(arrays["segment"]) if "segment" in arrays else np.array([BACKGROUND])
    return int(labels[labels != BACKGROUND].astype(int).max(initial=-1)) + 1


class StoredArrays(Mapping[str, StoredArray]):
    """The arrays of a split, each mapped when it is first asked for: a map keeps its file open.

    A pickled one has no maps: the process that reads it maps the files itself.
    """

    def __init__(self, root: Path, plan: DatasetPlan, split: str) -> None:
        """`root`: the real path of the data set."""
        self._root, self._plan, self._split = root, plan, split
        self._keys = plan.keys_of(split)
        self._found: dict[str, StoredArray] = {}

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_found": {}}

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __getitem__(self, key: str) -> StoredArray:
        if key not in self._keys:
            raise KeyError(key)
        if key not in self._found:
            shards = [self._shard(part, key) for part in self._plan.parts(self._split)]
            dtype = np.dtype(DESCR[KEYS[key].dtype])
            self._found[key] = shards[0].open() if len(shards) == 1 else ShardedArray(shards, dtype)
        return self._found[key]

    def _shard(self, part: Part, key: str) -> Shard:
        shape = KEYS[key].shape(self._plan.part_size(part))
        return Shard(shape, partial(_mapped, self._root, f"{part.folder}/{key}.npy", shape, KEYS[key].dtype))


def _mapped(root: Path, name: str, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    return map_array(_inside(root, name, root), shape, dtype)


class Store:
    """An opened data set: every header and size agrees with meta.json. Checksums are the work of `check_dataset`."""

    def __init__(self, path: Path, meta: Meta) -> None:
        self.path = path
        self.meta = meta
        self._root = path.resolve()

    def __repr__(self) -> str:
        counts = ", ".join(f"{name} {plan.scenes}" for name, plan in self.meta.plan.splits.items())
        return f"Store({str(self.path)!r}: {counts})"

    @classmethod
    def open(cls, path: str | Path) -> "Store":
        folder = Path(path)
        _require_finished(folder)
        store = cls(folder, read_meta(_inside(folder, META, folder.resolve())))
        for split in store.splits:
            store._check_files(split)
        return store

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.meta.plan.splits)

    def split(self, name: str) -> SplitArrays:
        self._require_split(name)
        plan = self.meta.plan
        return SplitArrays(name, plan.size(name), StoredArrays(self._root, plan, name), plan.per_view_masks)

    def names(self, name: str) -> list[str] | None:
        """What the source of an import calls the scenes of a split; None where nothing tells."""
        self._require_split(name)
        if not self.meta.plan.named:
            return None
        return [printable(str(one.get("name", scene))) for scene, one in enumerate(self.descriptions(name))]

    def descriptions(self, name: str) -> Iterator[dict[str, Any]]:
        """The scenes of a split as plain data: ours as they can be rendered again, imported ones by name and by what
        their source tells of the objects."""
        self._require_split(name)
        if not self.meta.plan.has_descriptions:
            raise UserError(f"{self.path}: imported pictures come without scene descriptions")
        for part in self.meta.plan.parts(name):
            path = _inside(self.path, f"{part.folder}/{DESCRIPTIONS}", self._root)
            with open_regular(path) as file, plain_errors("reading", path):
                for line in range(part.scenes):
                    yield _description(file.readline(LINE_LIMIT + 1), path, line, part.first)
                if file.read(1):
                    raise UserError(f"{path}: more lines than scenes")

    def _require_split(self, name: str) -> None:
        if name not in self.meta.plan.splits:
            raise UserError(
                f"{self.path}: no split {shown(name)}; name one that it has: --split {' or '.join(self.splits)}"
            )

    def _check_files(self, split: str) -> None:
        plan = self.meta.plan
        parts = plan.parts(split)
        for part in parts:
            real, size = _inside(self.path, part.folder, self._root), plan.part_size(part)
            for name in plan.files_of(part):
                path = real / Path(name).name
                if path.is_symlink():
                    path = _inside(self.path, name, self._root)
                with open_regular(path) as file, plain_errors("reading", path):
                    if name.endswith(".npy"):
                        key = KEYS[Path(name).stem]
                        _check(file, path, key.shape(size), key.dtype)
                    found, known = os.fstat(file.fileno()).st_size, self.meta.files[name].bytes
                if found != known:
                    raise UserError(f"{path}: {found} bytes long where {META} says {known}")
        self._refuse_others(split, {part.folder for part in parts})

    def _refuse_others(self, split: str, ours: set[str]) -> None:
        """A shard too many tells of a copy that was mixed up: scenes would be missing without a word."""
        folder = self.path / split
        with plain_errors("opening", folder):
            found = sorted(name for name in os.listdir(folder) if SHARD_NAME.fullmatch(name))
        for name in found:
            if f"{split}/{name}" not in ours:
                shards = self.meta.plan.splits[split].shards
                what = f"{shards} shards" if shards > 1 else "no shards"
                raise UserError(f"{folder / name}: a shard that is none of this data set; {META} has {what} of {split}")


def _require_finished(folder: Path) -> None:
    with plain_errors("opening", folder):
        if folder.is_file():
            other = "`viewslots convert FILE DIR` makes one of an HDF5 file in the published layout"
            raise UserError(f"{folder}: a file, where the folder of a data set is expected; {other}")
        if not folder.is_dir():
            raise UserError(f"{folder}: not a data set (no such folder)")
        if (folder / MAKING).exists():
            raise UserError(
                f"{folder}: unfinished data set; run the command that made it again, and it will be finished"
            )
        if not (folder / META).exists():
            raise UserError(
                f"{folder}: not a data set (it has no {META}); `viewslots import-data pictures` makes one of "
                "folders of pictures"
            )


def _inside(folder: Path, name: str, root: Path) -> Path:
    """The real path of a file of the data set; a link that leads out of its `root`, the real folder, is refused."""
    with plain_errors("opening", folder / name):
        try:
            real = (folder / name).resolve(strict=True)
        except RuntimeError as error:  # a loop of links, before Python 3.13
            raise UserError(f"{folder / name}: links in a circle") from error
        if not real.is_relative_to(root):
            raise UserError(f"{folder / name}: links to a place outside the data set")
    return real


def _description(line: bytes, path: Path, number: int, first: int) -> dict[str, Any]:
    """Of scene `first + number`, line `number` of its file."""
    wrong = UserError(f"{path}: line {number + 1} (scene {first + number}) is not a scene description")
    try:
        value = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise wrong from error
    if not isinstance(value, dict) or not line.endswith(b"\n"):
        raise wrong
    return value


MAGIC = b"\x93NUMPY\x01\x00"
HEADER_BYTES = 128
"""Ours is always this long: the bytes of a data set do not depend on the version of numpy that wrote it."""
HEADER_LIMIT = 1024
"""Headers that numpy itself wrote are accepted too, up to this length."""

DESCR = {"uint8": "|u1", "float32": "<f4"}


def header(shape: tuple[int, ...], dtype: str) -> bytes:
    """Version 1.0 of the format that `numpy.load` reads."""
    text = f"{{'descr': '{DESCR[dtype]}', 'fortran_order': False, 'shape': {shape!r}, }}"
    length = HEADER_BYTES - len(MAGIC) - 2
    return MAGIC + length.to_bytes(2, "little") + text.ljust(length - 1).encode("ascii") + b"\n"


def map_array(path: Path, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """The array as a read-only memory map. Checked first: a map beyond the end of a file would kill the process."""
    with open_regular(path) as file, plain_errors("mapping", path):
        offset = _check(file, path, shape, dtype)
        _require_room(file.fileno(), path)
        mapped = np.memmap(file, dtype=DESCR[dtype], mode="r", offset=offset, shape=shape)
        mapped.filename = str(path.absolute())  # for `require_whole`; numpy finds none in a handle
        return mapped


def _require_room(handle: int, path: Path) -> None:
    """For one more open file. Shards that nobody reads at the moment give way; they are mapped again when needed."""
    if room_beside(handle):
        return
    forget_maps()
    if not room_beside(handle):
        raise UserError(
            f"{path}: cannot be mapped, {allowed_files()} open files are allowed and nearly all are in use; "
            "allow more with `ulimit -n`, or use fewer shards"
        )


def _check(file: IO[bytes], path: Path, shape: tuple[int, ...], dtype: str) -> int:
    """Where the data start, once header and real size agree with what is promised."""
    offset = HEADER_BYTES
    if file.read(HEADER_BYTES) != header(shape, dtype):  # not as we write it
        file.seek(0)
        found, offset = _read_header(file, path)
        expected = {"descr": DESCR[dtype], "fortran_order": False, "shape": shape}
        for name, value in expected.items():
            if type(found[name]) is not type(value) or found[name] != value:
                raise UserError(f"{path}: header says {name} {shown(found[name])}, but it must be {value!r}")
    size = os.fstat(file.fileno()).st_size
    promised = offset + math.prod(shape) * np.dtype(dtype).itemsize
    if size != promised:
        raise UserError(f"{path}: {size} bytes long where its header promises {promised}; copy or make it again")
    return offset


def _read_header(file: IO[bytes], path: Path) -> tuple[dict[str, Any], int]:
    prefix = file.read(len(MAGIC) + 2)
    if len(prefix) < len(MAGIC) + 2 or not prefix.startswith(MAGIC):
        raise UserError(f"{path}: not a .npy file of version 1.0")
    length = int.from_bytes(prefix[-2:], "little")
    text = file.read(length)
    if length > HEADER_LIMIT or len(text) < length:
        raise UserError(f"{path}: truncated or oversized .npy header")
    try:
        value = ast.literal_eval(text.decode("ascii").strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise UserError(f"{path}: damaged .npy header") from error
    if not isinstance(value, dict) or set(value) != {"descr", "fortran_order", "shape"}:
        raise UserError(f"{path}: damaged .npy header")
    return value, len(prefix) + length
