"""DeepMind's multi_object_datasets: CLEVR with masks, Objects Room, Multi-dSprites, Tetrominoes. One view a scene.

A TFRecord file, or a folder of them. The file does not say which set it is: sizes and features do.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
from jaxtyping import UInt8
from numpy.typing import NDArray

from viewslots.data.picture_files import one_line
from viewslots.data.sources.source import Facts, Options, Picture, Properties, Tree, View, own_split
from viewslots.data.sources.tfrecord import Records, bytes_list, example, float_list
from viewslots.errors import UserError
from viewslots.types import BACKGROUND

ENDINGS = (".tfrecords", ".tfrecord")
SIZES = {230_400: (240, 320, 3), 12_288: (64, 64, 3), 4_096: (64, 64, 1), 3_675: (35, 35, 3)}
"""Bytes of `image`: CLEVR; Objects Room and Multi-dSprites; the latter, binarized; Tetrominoes."""
ROOM = 4
"""In Objects Room the first masks are sky, floor and two walls; elsewhere the first is the background."""
PROPERTIES = {"color": ("color",), "shape": ("shape",), "size": ("size", "scale"), "material": ("material",)}
"""Ours, and the features that tell them."""
SPRITES = {"orientation", "scale"}
"""Features of Multi-dSprites alone, whose masks lie entity last."""


class Layout(NamedTuple):
    """Of the records of one file."""

    height: int
    width: int
    channels: int
    entities: int
    entity_last: bool
    backgrounds: int

    def read(
        self, data: bytes, where: str
    ) -> tuple[UInt8[np.ndarray, "H W 3"], UInt8[np.ndarray, "E H W"], NDArray[Any]]:
        """Picture, masks, and which entities there are, as far as the record says."""
        image, mask, visibility = _features(data, where)
        if (
            image.size != self.height * self.width * self.channels
            or mask.size != self.entities * self.height * self.width
        ):
            raise UserError(f"{where}: a picture or mask of another size than in the first record")
        picture = image.reshape(self.height, self.width, self.channels)
        picture = np.broadcast_to(picture, (self.height, self.width, 3))
        if self.entity_last:
            return picture, np.moveaxis(mask.reshape(self.height, self.width, self.entities), 2, 0), visibility
        return picture, mask.reshape(self.entities, self.height, self.width), visibility


class Names(Sequence[str]):
    """FILE/NUMBER, made when asked for: there may be a million."""

    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts

    def __len__(self) -> int:
        return sum(self._counts.values())

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[str]: ...
    def __getitem__(self, place: int | slice) -> str | Sequence[str]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        for name, count in self._counts.items():
            if place < count:
                return f"{name}/{place}"
            place -= count
        raise IndexError(place)


class MultiObject:
    """See Source."""

    def __init__(self, path: Path, options: Options) -> None:
        files = [path]
        if path.is_dir():
            files = [file for file in Tree(path).files(path) if file.suffix.lower() in ENDINGS]
        self._options = options
        self._files = files
        self._layouts = [_layout(file) for file in files]
        self._counts = [_count(file) for file in files]
        self._facts = list(map(self._known, files, self._layouts))
        self._open: tuple[int, Records] | None = None
        self._last: tuple[int, bytes] | None = None
        self.names = Names({file.stem: count for file, count in zip(files, self._counts, strict=True)})
        self.notes: list[str] = []
        self.splits = self._named() if len(files) > 1 else None

    def _named(self) -> list[str] | None:
        """The splits that several files are named for: train, and test1, or test-VARIANT where there are more."""
        tests = [file.stem.lower() for file in self._files if "test" in file.stem.lower().split("_")]
        splits = []
        for file, count in zip(self._files, self._counts, strict=True):
            name = file.stem.lower()
            split = own_split(name)
            if name in tests:
                split = "test1" if len(tests) == 1 else "test-" + name.partition("test_")[2].replace("_", "-")[:26]
            if split is None:
                return None
            splits += [split] * count
        return splits

    def files(self) -> Iterator[Path]:
        yield from self._files

    def facts(self, scene: int) -> Facts:
        """The same for all records of a file: there may be a million."""
        return self._facts[self._place(scene)[0]]

    def _known(self, file: Path, layout: Layout) -> Facts:
        pictures = [Picture(one_line(file), (layout.height, layout.width))]
        if not self._options.masks:
            return Facts(pictures, frozenset({"image"}))
        slots = layout.entities - layout.backgrounds
        return Facts(pictures, frozenset({"image", "segment", "num_objects"}), slots)

    def _place(self, scene: int) -> tuple[int, int]:
        for number, count in enumerate(self._counts):
            if scene < count:
                return number, scene
            scene -= count
        raise IndexError(scene)

    def views(self, scene: int) -> Iterator[View]:
        number, record = self._place(scene)
        where, layout = f"{one_line(self._files[number])}: record {record}", self._layouts[number]
        self._last = (scene, self._read(number, record))
        picture, masks, visibility = layout.read(self._last[1], where)
        if not self._options.masks:
            yield {"image": picture}
            return
        entity = masks.argmax(0)
        first = layout.backgrounds
        segment = np.where(entity < first, BACKGROUND, entity - first).astype(np.uint8)
        used = masks[first:].any((1, 2))
        if len(visibility) == layout.entities:
            used |= visibility[first:] > 0
        objects = int(np.flatnonzero(used).max(initial=-1)) + 1
        yield {"image": picture, "segment": segment, "num_objects": np.array(objects)}

    def objects(self, scene: int) -> list[Properties] | None:
        """Kinds are numbers in these files, and stay so: as words, since they have no order."""
        if not self._options.masks or self._last is None or self._last[0] != scene:
            return None
        layout = self._layouts[self._place(scene)[0]]
        known = {name: _property(self._last[1], feature, layout.entities) for name, feature in PROPERTIES.items()}
        columns = {name: values for name, values in known.items() if values is not None}
        if not columns:
            return None
        return [
            {name: values[k] for name, values in columns.items()} for k in range(layout.backgrounds, layout.entities)
        ]

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close()

    def _read(self, number: int, record: int) -> bytes:
        """Files are read forward; only an import that goes back opens one again."""
        if self._open is None or self._open[0] != number or self._open[1].next > record:
            self.close()
            self._open = (number, Records(self._files[number]))
        records = self._open[1]
        while records.next < record:
            records.skip()
        return records.read()


def _property(data: bytes, features: tuple[str, ...], entities: int) -> list[str | float | list[float]] | None:
    """One value an entity: bytes, and floats that name a shape, are kinds; other floats are numbers."""
    found = example(data)
    name = next((feature for feature in features if feature in found), None)
    if name is None:
        return None
    kind, content = found[name]
    values = bytes_list(content) if kind == 1 else float_list(content) if kind == 2 else np.empty(0)
    if not values.size or values.size % entities or not np.isfinite(values).all():
        return None
    rows = values.reshape(entities, -1)
    if kind == 1 or name == "shape":
        return [" ".join(f"{one:g}" for one in row) for row in rows.tolist()]
    return [row if len(row) > 1 else row[0] for row in rows.astype(float).tolist()]


def _count(path: Path) -> int:
    records = Records(path)
    try:
        while records.skip():
            pass
        return records.next
    finally:
        records.close()


def _layout(path: Path) -> Layout:
    """Of a file, by its first record."""
    records = Records(path)
    try:
        data = records.read()
    finally:
        records.close()
    where = f"{one_line(path)}: record 0"
    image, mask, _ = _features(data, where)
    if image.size in SIZES:
        height, width, channels = SIZES[image.size]
    else:
        height = width = round((image.size / 3) ** 0.5)
        channels = 3
    pixels = height * width
    if image.size != pixels * channels or not pixels or mask.size % pixels or not mask.size:
        raise UserError(f"{where}: {image.size} bytes of image and {mask.size} of mask are of no set that is known")
    others = set(example(data)) - {"image", "mask"}
    entities, backgrounds = mask.size // pixels, 1 if others else ROOM
    if entities < backgrounds:
        raise UserError(f"{where}: {entities} masks, fewer than the {backgrounds} of a background")
    return Layout(height, width, channels, entities, others >= SPRITES, backgrounds)


def _features(data: bytes, where: str) -> tuple[UInt8[np.ndarray, "I"], UInt8[np.ndarray, "N"], NDArray[Any]]:
    try:
        found = example(data)
        image, mask = (bytes_list(found[name][1]) for name in ("image", "mask"))
        kind, content = found.get("visibility", (0, memoryview(b"")))
        return image, mask, float_list(content) if kind == 2 else np.empty(0)
    except KeyError as error:
        raise UserError(f"{where}: has no {error.args[0]}; not a set of multi_object_datasets") from error
    except (ValueError, IndexError) as error:
        raise UserError(f"{where}: not a tf.Example ({' '.join(str(error).split())[:80]})") from error
