"""The format of a data set (docs/data-format.md): its keys and limits, and meta.json, read without trusting it."""

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from viewslots.errors import UserError
from viewslots.files import Fields, FileEntry, printable, read_json, shown

FORMAT = "viewslots-data"
FORMAT_VERSION = 3
UNSHARDED_VERSION = 2
"""Of data sets without shards: programs that know of none read them, too."""

SPLIT_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
"""Split names are folder names: nothing here can climb out of the data set."""

SPLIT_OF_NAME = {
    **{"train": "train", "training": "train"},
    **{"valid": "valid", "val": "valid", "validation": "valid"},
    **{"test": "test1", "testing": "test1", "test1": "test1", "test_1": "test1"},
    **{"general": "test2", "generalization": "test2", "test2": "test2", "test_2": "test2"},
}
"""What others call our splits: groups of the authors' files, folders and files of public data sets."""

# A file that claims more than this is damaged or hostile; the largest real set known to us stays a hundred times below.
MAX_SCENES = 100_000_000
MAX_VIEWS = 1024
MAX_SIDE = 4096
MAX_SLOTS = 255
"""Object indices are u8 and 255 is the background."""
MAX_SCENE_BYTES = 2**30
"""The largest array of one scene: whatever reads scene by scene needs no more memory than this."""


@dataclass(frozen=True)
class Size:
    """How many scenes, views, object slots and pixels one split has."""

    scenes: int
    views: int
    slots: int
    height: int
    width: int

    def problem(self, keys: Collection[str]) -> str | None:
        """Why no data set with these keys can have this size, or None."""
        limits = {"scenes": MAX_SCENES, "views": MAX_VIEWS, "slots": MAX_SLOTS, "height": MAX_SIDE, "width": MAX_SIDE}
        for name, limit in limits.items():
            value = getattr(self, name)
            least = 0 if name == "slots" and not has_slots(keys) else 1
            if not least <= value <= limit:
                return f"{name} is {value}, but must be in {least}..{limit}"
        if "num_views" in keys and self.views > MAX_NUM_VIEWS:
            return f"views is {self.views}, but num_views counts only to {MAX_NUM_VIEWS}"
        largest = max(KEYS[key].scene_bytes(self) for key in keys)
        if largest > MAX_SCENE_BYTES:
            return f"one scene would take {largest} bytes, more than the limit of {MAX_SCENE_BYTES}"
        return None


@dataclass(frozen=True)
class Key:
    """One array of a split: `axes` names its dimensions, letters as in ARCHITECTURE.md, digits as they are."""

    axes: str
    dtype: str
    unit: str

    def shape(self, size: Size) -> tuple[int, ...]:
        letters = {"S": size.scenes, "M": size.views, "K": size.slots, "H": size.height, "W": size.width}
        return tuple(letters[axis] if axis in letters else int(axis) for axis in self.axes.split())

    @property
    def itemsize(self) -> int:
        return {"uint8": 1, "float32": 4}[self.dtype]

    def scene_bytes(self, size: Size) -> int:
        """Bytes of one scene; in Python's integers, so absurd sizes do not overflow."""
        return math.prod(self.shape(size)[1:]) * self.itemsize


KEYS: dict[str, Key] = {
    "image": Key("S M H W 3", "uint8", "sRGB, 0..255"),
    "segment": Key("S M H W", "uint8", "index of the visible object, 255 = background"),
    "overlap": Key("S M H W", "uint8", "number of complete shapes with alpha >= 128"),
    "shapes": Key("S M K H W", "uint8", "complete (amodal) alpha of each object, 0..255; 0 for unused slots"),
    "shadows": Key("S M K H W", "uint8", "share of direct light object k takes from the ground, 0..255; 0 if unused"),
    "depth_order": Key("S M K", "float32", "larger is nearer; -inf for unused slots"),
    "camera": Key("S M 3", "float32", "camera position in metres, looking at the origin; 0 if there is none"),
    "num_objects": Key("S", "uint8", "number of objects; slots from this index on are unused"),
    "pose": Key("S M 4 4", "float32", "camera to world, in metres; x right, y up, the camera looks along -z"),
    "intrinsics": Key("S M 4", "float32", "fx, fy, cx, cy in pixels from the upper left corner of the picture"),
    "num_views": Key("S", "uint8", "number of views; everything about views from this index on is 0"),
}
"""In the order of `Pictures`. meta.json lists those that are there."""

REQUIRED = {1: ("image", "segment", "overlap", "shapes", "num_objects"), 2: ("image",), 3: ("image",)}
"""By version of the format."""
MAX_NUM_VIEWS = 255
"""`num_views` is u8."""


def has_slots(keys: Iterable[str]) -> bool:
    """Whether one of the arrays has an axis of objects."""
    return any("K" in KEYS[key].axes for key in keys)


def bytes_per_scene(keys: tuple[str, ...], size: Size) -> int:
    return sum(KEYS[key].scene_bytes(size) for key in keys)


META = "meta.json"
DESCRIPTIONS = "scenes.jsonl"
FLAGS = ("named", "per_view_masks")
"""Of meta.json: true, or not there."""
MAX_SPLITS = 64
MAX_SHARDS = 10_000
"""Of one split."""
MAX_FILES = 2**14
"""Their list in meta.json then stays below what is read of a JSON file."""
MAX_BYTES = 2**53
"""JSON numbers are exact up to here in every language."""
MOST_SKIPPED = 100
"""Names of scenes that an import left out; their number is told as well."""


@dataclass(frozen=True)
class Source:
    """A foreign file (or folder of art) that a data set was made from."""

    name: str
    bytes: int
    sha256: str
    """Of a folder: of the list of its files, each a line with name, size and checksum."""
    read_as: str = ""
    """Kind and options of an import, which decide what becomes of the file."""
    skipped: int = 0
    """Scenes that could not be read and were left out, as the import was told to."""
    skipped_scenes: tuple[str, ...] = ()
    """Names of the first of them."""

    def to_json(self) -> dict[str, Any]:
        known = {name: value for name, value in vars(self).items() if value not in ("", 0, ()) or name == "bytes"}
        return known | ({"skipped_scenes": list(self.skipped_scenes)} if self.skipped_scenes else {})


class Part(NamedTuple):
    """Scenes first..last-1 of a split, which lie in one folder: a shard, or the whole split."""

    split: str
    folder: str
    first: int
    last: int

    @property
    def scenes(self) -> int:
        return self.last - self.first


@dataclass(frozen=True)
class SplitPlan:
    scenes: int
    slots: int
    """The largest number of objects, where it is known; else 0."""
    without: tuple[str, ...] = ()
    """Keys of the data set that this split does not have."""
    shards: int = 1
    """Folders that its scenes are spread over; one is the split's own."""

    def to_json(self) -> dict[str, Any]:
        fields = {"scenes": self.scenes, "slots": self.slots}
        without = {"without": list(self.without)} if self.without else {}
        return fields | without | ({"shards": self.shards} if self.shards > 1 else {})


@dataclass(frozen=True)
class DatasetPlan:
    """Everything that determines the content of a data set: equal plans give equal bytes."""

    generator: str
    preset: str | None
    seed: int | None
    quality: str | None
    device: str | None
    source: Source | None
    art: Source | None
    views: int
    height: int
    width: int
    splits: Mapping[str, SplitPlan]
    keys: tuple[str, ...]
    named: bool = False
    """Of imported pictures: their scenes have a line each in scenes.jsonl, with a name at least."""
    per_view_masks: bool = False
    """The same index in `segment` need not be the same object in two views of a scene."""

    def size(self, split: str) -> Size:
        entry = self.splits[split]
        return Size(entry.scenes, self.views, entry.slots, self.height, self.width)

    @property
    def has_descriptions(self) -> bool:
        """Data sets that we made describe their scenes, imported ones name them; older imports and convert do not."""
        return self.source is None or self.named

    def keys_of(self, split: str) -> tuple[str, ...]:
        return tuple(key for key in self.keys if key not in self.splits[split].without)

    def sharded(self, shards: int) -> "DatasetPlan":
        """The same scenes with every split in so many shards, or in as many as it has scenes."""
        if not 1 <= shards <= MAX_SHARDS:
            raise UserError(f"--shards {shards}: must be in 1..{MAX_SHARDS}")
        cut = {name: replace(split, shards=min(shards, split.scenes)) for name, split in self.splits.items()}
        plan = replace(self, splits=cut)
        if problem := plan.too_many_files():
            raise UserError(f"--shards {shards}: {problem}")
        return plan

    def parts(self, split: str | None = None) -> list[Part]:
        """Of one split or of all: scenes cut into runs of nearly equal length."""
        if split is None:
            return [part for name in self.splits for part in self.parts(name)]
        scenes, shards = self.splits[split].scenes, self.splits[split].shards
        if shards == 1:
            return [Part(split, split, 0, scenes)]
        cuts = [shard * scenes // shards for shard in range(shards + 1)]
        return [Part(split, f"{split}/{shard:05d}", cuts[shard], cuts[shard + 1]) for shard in range(shards)]

    def part_size(self, part: Part) -> Size:
        return replace(self.size(part.split), scenes=part.scenes)

    def files_of(self, part: Part) -> list[str]:
        names = [f"{part.folder}/{key}.npy" for key in self.keys_of(part.split)]
        return names + ([f"{part.folder}/{DESCRIPTIONS}"] if self.has_descriptions else [])

    def file_names(self) -> list[str]:
        return [name for part in self.parts() for name in self.files_of(part)]

    def too_many_files(self) -> str | None:
        files = sum(
            plan.shards * (len(self.keys_of(split)) + self.has_descriptions) for split, plan in self.splits.items()
        )
        return f"{files} files, more than the limit of {MAX_FILES}; use fewer shards" if files > MAX_FILES else None

    def to_json(self) -> dict[str, Any]:
        is_sharded = any(split.shards > 1 for split in self.splits.values())
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION if is_sharded else UNSHARDED_VERSION,
            "generator": self.generator,
            "preset": self.preset,
            "seed": self.seed,
            "quality": self.quality,
            "device": self.device,
            "source": None if self.source is None else self.source.to_json(),
            "art": None if self.art is None else self.art.to_json(),
            "views": self.views,
            "height": self.height,
            "width": self.width,
            "splits": {name: split.to_json() for name, split in self.splits.items()},
            "keys": {
                key: {"shape": KEYS[key].axes, "dtype": KEYS[key].dtype, "unit": KEYS[key].unit} for key in self.keys
            },
            **{name: True for name in FLAGS if getattr(self, name)},
        }


@dataclass(frozen=True)
class Meta:
    """A finished data set: its plan, and size and checksum of every file."""

    plan: DatasetPlan
    files: Mapping[str, FileEntry]

    def to_json(self) -> dict[str, Any]:
        return self.plan.to_json() | {"files": {name: vars(entry) for name, entry in self.files.items()}}


def read_meta(path: Path) -> Meta:
    raw = read_json(path)
    plan = parse_plan(raw, path)
    files = Fields(raw, path).mapping("files")
    expected = plan.file_names()
    if set(files) != set(expected):
        odd = sorted(set(files) ^ set(expected))[0]
        raise UserError(f"{path}: its list of files does not fit its splits and keys (see {shown(odd)})")
    return Meta(plan, {name: _file_entry(files, name, path) for name in expected})


def parse_plan(raw: Mapping[str, Any], path: Path) -> DatasetPlan:
    """The part of meta.json (and of making.json) that says what the data set is."""
    fields = Fields(raw, path)
    version = _version(fields, path)
    source = fields.raw.get("source")
    plan = DatasetPlan(
        generator=fields.text("generator"),
        preset=fields.text("preset", optional=True),
        seed=fields.integer("seed", -(2**63), 2**63 - 1, optional=True),
        quality=fields.text("quality", optional=True),
        device=fields.text("device", optional=True),
        source=None if source is None else _source(fields.mapping("source"), path),
        art=None if fields.raw.get("art") is None else _source(fields.mapping("art"), path),
        views=fields.whole("views", 1, MAX_VIEWS),
        height=fields.whole("height", 1, MAX_SIDE),
        width=fields.whole("width", 1, MAX_SIDE),
        splits=_splits(fields.mapping("splits"), version, path),
        keys=_keys(fields.mapping("keys"), version, path),
        **{name: _flag(raw, name, path) for name in FLAGS},
    )
    for split in plan.splits:
        if problem := plan.size(split).problem(plan.keys_of(split)):
            raise UserError(f"{path}: split {split}: {problem}")
    if problem := plan.too_many_files():
        raise UserError(f"{path}: {problem}")
    for key in plan.keys:
        if all(key in split.without for split in plan.splits.values()):
            raise UserError(f"{path}: no split has the key {key}")
    return plan


def _flag(raw: Mapping[str, Any], name: str, path: Path) -> bool:
    value = raw.get(name, False)
    if not isinstance(value, bool):
        raise UserError(f"{path}: {name} must be true or false, but is {shown(value)}")
    return value


def _version(fields: Fields, path: Path) -> int:
    if fields.text("format") != FORMAT:
        raise UserError(f"{path}: not a viewslots data set (format is {shown(fields.raw['format'])})")
    version = fields.whole("format_version", 1, 2**31)
    if version > FORMAT_VERSION:
        raise UserError(
            f"{path}: format version {version} is newer than this program reads ({FORMAT_VERSION}); update viewslots"
        )
    return version


def _source(raw: Mapping[str, Any], path: Path) -> Source:
    fields = Fields(raw, path)
    read_as = fields.text("read_as") if "read_as" in raw else ""
    known = (fields.text("name"), fields.whole("bytes", 0, MAX_BYTES), fields.digest("sha256"), read_as)
    skipped = fields.whole("skipped", 1, MAX_SCENES) if "skipped" in raw else 0
    names = raw.get("skipped_scenes", [])
    if not isinstance(names, list) or len(names) > MOST_SKIPPED or not all(isinstance(name, str) for name in names):
        raise UserError(f"{path}: skipped_scenes must be a list of names, at most {MOST_SKIPPED}")
    return Source(*known, skipped, tuple(printable(name) for name in names))


def _splits(raw: Mapping[str, Any], version: int, path: Path) -> dict[str, SplitPlan]:
    if not 1 <= len(raw) <= MAX_SPLITS:
        raise UserError(f"{path}: {len(raw)} splits, but must have 1..{MAX_SPLITS}")
    splits = {}
    for name in raw:
        if not SPLIT_NAME.fullmatch(name):
            raise UserError(f"{path}: {shown(name)} cannot be the name of a split")
        fields = Fields(Fields(raw, path).mapping(name), path)
        without = _without(fields.raw.get("without", []), version, name, path)
        scenes, slots = fields.whole("scenes", 1, MAX_SCENES), fields.whole("slots", 0, MAX_SLOTS)
        # Before version 3 there were no shards: the field meant nothing and means nothing now.
        sharded = version >= FORMAT_VERSION and "shards" in fields.raw
        shards = fields.whole("shards", 1, min(scenes, MAX_SHARDS)) if sharded else 1
        splits[name] = SplitPlan(scenes, slots, without, shards)
    return splits


def _without(raw: Any, version: int, split: str, path: Path) -> tuple[str, ...]:
    optional = [name for name in KEYS if name not in REQUIRED[2]] if version > 1 else []
    if not isinstance(raw, list) or any(key not in optional for key in raw):
        raise UserError(f"{path}: split {split} cannot be without {shown(raw)}")
    return tuple(key for key in KEYS if key in raw)


def _keys(raw: Mapping[str, Any], version: int, path: Path) -> tuple[str, ...]:
    for name in raw:
        if name not in KEYS:
            raise UserError(f"{path}: unknown key {shown(name)}")
        fields = Fields(Fields(raw, path).mapping(name), path)
        if (fields.text("shape"), fields.text("dtype")) != (KEYS[name].axes, KEYS[name].dtype):
            raise UserError(f"{path}: key {name} must be {KEYS[name].dtype} [{KEYS[name].axes}]")
    for name in REQUIRED[version]:
        if name not in raw:
            raise UserError(f"{path}: key {name} is missing")
    return tuple(name for name in KEYS if name in raw)


def _file_entry(files: Mapping[str, Any], name: str, path: Path) -> FileEntry:
    fields = Fields(Fields(files, path).mapping(name), path)
    return FileEntry(fields.whole("bytes", 0, MAX_BYTES), fields.digest("sha256"))
