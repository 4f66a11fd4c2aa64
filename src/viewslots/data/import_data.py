"""Importing: scenes of any source, cut and resized, streamed into the writer. Memory of one scene.

Everything is looked at before anything is written: number of views, sizes, which truth there is. Then scene after
scene is read, made into the format's arrays, checked and appended.
"""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from viewslots import __version__
from viewslots.data import format as layout
from viewslots.data.checks import first_violation
from viewslots.data.filling import Job, fill
from viewslots.data.format import KEYS, MAX_SIDE, DatasetPlan, Size, SplitPlan
from viewslots.data.identities import Identities
from viewslots.data.picture_files import one_line
from viewslots.data.resize import Resize
from viewslots.data.sources.source import Facts, Options, Picture, Source, View, open_source
from viewslots.data.sources.splits import split_scenes
from viewslots.data.writer import Done, StoreWriter, require_free
from viewslots.errors import UserError
from viewslots.files import plain_errors, printable, sha256
from viewslots.ranks import ALONE, Team
from viewslots.types import COVERED, SCENE_KEYS, OnProgress

MOST_WORDS = 10**6
"""Letters of all options together."""
SHOWN_SKIPPED = 3
"""So many damaged scenes are told with what is wrong with them."""
MASKS = ("segment", "overlap", "shapes", "shadows", "depth_order", "num_objects")
CAMERAS = ("camera", "pose", "intrinsics")


@dataclass(frozen=True)
class Import:
    """What is asked of an import."""

    size: tuple[int, int] | None = None
    """Height and width that pictures get, from the middle; None: as they are."""
    crop: float = 1.0
    """Share of each side that is kept, in the middle."""
    splits: tuple[str, ...] = ()
    """NAME=RULE; see sources/splits.py."""
    options: Options = field(default_factory=Options)
    skip_damaged: bool = False
    """Whether scenes that cannot be read are left out; else the first of them ends the import."""

    def __post_init__(self) -> None:
        if not 0 < self.crop <= 1:
            raise UserError(f"--crop {self.crop}: must be above 0 and at most 1")
        if self.options.views is not None and not 1 <= self.options.views <= layout.MAX_VIEWS:
            raise UserError(f"--views {self.options.views}: must be in 1..{layout.MAX_VIEWS}")
        if self.size is not None:
            Resize.between(self.size, self.size)  # refuses absurd sizes

    def words(self, kind: str) -> str:
        """On record with the data set: kind and options, as on the command line."""
        words = [kind, *(f"--split {rule}" for rule in self.splits)]
        words += [] if self.size is None else ["--size {}x{}".format(*self.size)]
        words += [] if self.crop == 1 else [f"--crop {self.crop}"]
        for field_ in fields(self.options):
            name, value = field_.name.replace("_", "-"), getattr(self.options, field_.name)
            if value != field_.default:
                words.append(
                    f"--no-{name}" if value is False else f"--{name}" if value is True else f"--{name} {value}"
                )
        words += ["--skip-damaged"] if self.skip_damaged else []
        text = printable(" ".join(words), MOST_WORDS)
        return text if len(text) <= 200 else f"{text[:120]}... sha256 {hashlib.sha256(text.encode()).hexdigest()}"

    def leaves_out(self, key: str) -> bool:
        return (key in MASKS and not self.options.masks) or (key in CAMERAS and not self.options.cameras)


def import_data(
    kind: str,
    path: Path,
    out: Path,
    asked: Import | None = None,
    *,
    shards: int = 1,
    looking: OnProgress | None = None,
    progress: OnProgress | None = None,
    team: Team = ALONE,
) -> tuple[Path, Sequence[str]]:
    """Write the data set, and answer where it is and what a user should know about it.

    The same call after an interruption finishes it; a source that cannot be read to its end leaves nothing behind.
    `shards`: folders that each split is spread over. All ranks of a team read, and the bytes are those of one process.
    """
    asked = asked or Import()
    if out.resolve().is_relative_to(path.resolve()):
        raise UserError(f"{out}: inside the source; choose another --out")
    looking, progress = looking or (lambda done, total: None), progress or (lambda done, total: None)
    with ExitStack() as stack:
        survey: Survey | None = None
        writer: StoreWriter | None = None

        def surveyed() -> Survey:
            source = stack.enter_context(closing(open_source(kind, path, asked.options)))
            return Survey(source, asked)

        def begin() -> tuple[DatasetPlan, dict[int, Facts], Mapping[str, Done], Mapping[int, str]]:
            nonlocal survey, writer
            require_free(out)
            survey = surveyed()
            if asked.skip_damaged:
                survey.leave_out(damaged_scenes(kind, path, asked.options, survey.order, looking))
            record = _looked_at(survey.source, path, survey, asked.words(kind), looking)
            planned = survey.plan(survey.with_skipped(record)).sharded(shards)
            writer = stack.enter_context(StoreWriter(out, planned))
            return writer.plan, survey.facts, writer.begun, survey.damaged

        plan, facts, begun, damaged = team.told(begin)
        if survey is None:
            survey = surveyed()
            survey.leave_out(damaged)
        survey.facts = facts
        jobs = _jobs(survey, plan, begun)
        identities = Identities() if kind == "pictures" and not plan.per_view_masks else None
        read = partial(_read, survey=survey, plan=plan, scenes=survey.members(), identities=identities)
        try:
            fill(out, plan, begun, jobs, read, writer, progress, team)
        except SourceError:
            if writer is not None:
                writer.discard()  # this source will never become a data set
            raise
        seen = team.collect(identities)
        if writer is None:
            return out, []
        noted = Identities.together([one for one in seen if one is not None]).notes()
        return writer.finish(), [*survey.source.notes, *survey.skipped_note(), *noted, *_advice(survey.split_of)]


def damaged_scenes(
    kind: str, path: Path, options: Options, scenes: Sequence[int], looking: OnProgress
) -> dict[int, str]:
    """Scenes that cannot be read to their end, and why. Pictures are read whole for it, once more than an import does;
    by a source of its own, since some are read in one direction alone."""
    found = {}
    with closing(open_source(kind, path, options)) as source:
        for done, scene in enumerate(scenes, 1):
            try:
                source.facts(scene)
                for _ in source.views(scene):
                    pass
            except UserError as error:
                found[scene] = str(error)
            looking(done, len(scenes))
    return found


class SourceError(UserError):
    """The source, not the disk that is written to, is to blame."""


def _read(
    job: Job, survey: "Survey", plan: DatasetPlan, scenes: Mapping[str, Sequence[int]], identities: Identities | None
) -> tuple[dict[str, NDArray[Any]], list[dict[str, Any]]]:
    """One scene."""
    scene = scenes[job.part.split][job.first]
    try:
        arrays, description = survey.arrays(scene, plan), survey.description(scene)
    except UserError as error:
        raise SourceError(*error.args) from error
    if identities is not None:
        identities.look(arrays)
    return arrays, [description]


def _advice(split_of: Mapping[int, str]) -> list[str]:
    train = [scene for scene, split in split_of.items() if split == "train"]
    if not train:
        others = " and ".join(dict.fromkeys(split_of.values()))
        what = "the only scene is" if len(split_of) == 1 else "all scenes are"
        return [f"{what} in {others}: no split train, which training needs (--split train=RULE moves scenes there)"]
    if "valid" in split_of.values():
        return []
    tenth = f"{train[0]}-{train[-1]}:10" if train[-1] - train[0] == len(train) - 1 else "RULE"
    return [f"no split valid, which training needs; --split valid={tenth} takes some of the scenes to train on"]


class Survey:
    """All scenes seen from outside: what they have in common, and what each split knows."""

    def __init__(self, source: Source, asked: Import) -> None:
        self.source = source
        self.asked = asked
        self._keys: dict[str, tuple[str, frozenset[str]]] = {}
        self.facts: dict[int, Facts] = {}
        self._first: Picture | None = None
        self.damaged: Mapping[int, str] = {}
        self._split()

    def _split(self) -> None:
        self._scenes = split_scenes(self.source, self.asked.splits, self.damaged)
        self._slots = dict.fromkeys(self._scenes, 0)
        self.split_of = {scene: split for split, members in self._scenes.items() for scene in members}
        self.order = sorted(self.split_of)

    def leave_out(self, damaged: Mapping[int, str]) -> None:
        """Whatever may be wrong with some scenes, others must be left; these are split as if they were all."""
        if damaged and len(damaged) == len(self.order):
            raise UserError(f"no scene can be read: {next(iter(damaged.values()))}")
        self.damaged = damaged
        self._split()

    def with_skipped(self, record: layout.Source) -> layout.Source:
        names = [printable(self.source.names[scene]) for scene in sorted(self.damaged)]
        return replace(record, skipped=len(names), skipped_scenes=tuple(names[: layout.MOST_SKIPPED]))

    def skipped_note(self) -> list[str]:
        if not self.damaged:
            return []
        first = "; ".join(list(self.damaged.values())[:SHOWN_SKIPPED])
        more = "; ..." if len(self.damaged) > SHOWN_SKIPPED else ""
        left = f"{len(self.damaged)} of {len(self.damaged) + len(self.order)} scenes"
        return [f"{left} cannot be read and were left out (meta.json names them): {first}{more}"]

    def members(self) -> dict[str, list[int]]:
        """The scenes of each split in the order in which they are written."""
        return {split: sorted(scenes) for split, scenes in self._scenes.items()}

    def look(self, scene: int) -> None:
        facts, name, split = self.source.facts(scene), one_line(self.source.names[scene]), self.split_of[scene]
        keys = frozenset(key for key in facts.keys if not self.asked.leaves_out(key))
        other, known = self._keys.setdefault(split, (name, keys))
        if known != keys:
            key = next(key for key in KEYS if key in known ^ keys)
            has, lacks = (other, name) if key in known else (name, other)
            option = "--no-masks" if key in MASKS else "--no-cameras"
            raise UserError(
                f"{lacks}: no {key} for every view, but {has}, also in split {split}, has it; add what is missing, "
                f"give such scenes a split of their own (--split), or leave this out ({option})"
            )
        self._slots[split] = max(self._slots[split], facts.slots)
        self.facts[scene] = facts
        for picture in facts.pictures:
            self._require_size(picture)

    def _require_size(self, picture: Picture) -> None:
        first = self._first = self._first or picture
        if self.asked.size is None and picture.size != first.size:
            raise UserError(
                f"{picture.name}: {_text(picture.size)} pixels, but {first.name} has {_text(first.size)}; "
                "one data set has one size: give --size N, which takes the middle square, or --size HxW"
            )
        if self.asked.size is None and max(picture.size) > MAX_SIDE:
            raise UserError(f"{picture.name}: {_text(picture.size)} pixels, more than {MAX_SIDE} a side; give --size N")

    def plan(self, record: layout.Source) -> DatasetPlan:
        assert self._first is not None
        change = self._resize(self._first.size)
        height, width = change.height, change.width
        counts = [len(facts.pictures) for facts in self.facts.values()]
        views = max(counts)
        keys = {split: set(known) for split, (_, known) in self._keys.items()}
        if min(counts) < views:
            for known in keys.values():
                known.add("num_views")
        every = tuple(key for key in KEYS if any(key in known for known in keys.values()))
        splits = {
            split: SplitPlan(len(members), self._slots[split], tuple(key for key in every if key not in keys[split]))
            for split, members in self._scenes.items()
        }
        for split, members in self._scenes.items():
            size = Size(len(members), views, self._slots[split], height, width)
            if problem := size.problem(keys[split]):
                raise UserError(f"split {split}: {problem}; give a smaller --size, or fewer --views")
        none = dict.fromkeys(("preset", "seed", "quality", "device", "art"))
        return DatasetPlan(
            generator=f"viewslots {__version__}",
            **none,
            source=record,
            views=views,
            height=height,
            width=width,
            splits=splits,
            keys=every,
            named=True,
            per_view_masks=self.asked.options.per_view_masks and "segment" in every and views > 1,
        )

    def _resize(self, size: tuple[int, int]) -> Resize:
        return Resize.of_middle(size, self.asked.crop, self.asked.size)

    def arrays(self, scene: int, plan: DatasetPlan) -> dict[str, NDArray[Any]]:
        """One scene as the format has it, with every promise checked."""
        split = self.split_of[scene]
        size, keys = plan.size(split), plan.keys_of(split)
        arrays = {key: np.zeros((1, *KEYS[key].shape(size)[1:]), KEYS[key].dtype) for key in keys}
        facts, count = self.facts[scene], 0
        for view, picture in zip(self.source.views(scene), facts.pictures, strict=True):
            for key, value in self._changed(view, picture, keys).items():
                arrays[key][0 if key in SCENE_KEYS else (0, count)] = value
            count += 1
        if "num_views" in arrays:
            arrays["num_views"][0] = count
        if violation := first_violation(arrays, size.slots):
            scene_name = one_line(self.source.names[scene])
            where = scene_name if violation.view is None else facts.pictures[violation.view].name
            raise UserError(f"{where}: {violation.key}: {violation.wrong}")
        return arrays

    def description(self, scene: int) -> dict[str, Any]:
        """Its name, and what the source tells of its objects."""
        objects = self.source.objects(scene)
        return {"name": printable(self.source.names[scene])} | ({} if objects is None else {"objects": objects})

    def _changed(self, view: View, picture: Picture, keys: Sequence[str]) -> dict[str, NDArray[Any]]:
        """A view cut and resized."""
        image = view["image"]
        if self.asked.size is None and image.shape[:2] != picture.size:
            raise UserError(
                f"{picture.name}: {_text(image.shape[:2])} pixels where {_text(picture.size)} are announced"
            )
        change = self._resize(image.shape[:2])
        changed = {key: view[key] for key in keys if key in view}
        changed["image"] = change.picture(image)
        for key in ("segment", "overlap", "shapes", "shadows"):
            if key in changed:
                if changed[key].shape[-2:] != image.shape[:2]:
                    raise UserError(
                        f"{picture.name}: {_text(image.shape[:2])} pixels, but its {key} has "
                        f"{_text(changed[key].shape[-2:])}"
                    )
                labels = torch.from_numpy(np.array(changed[key]))
                changed[key] = (change.labels if key in ("segment", "overlap") else change.alpha)(labels).numpy()
        if "shapes" in changed and change.factor != 1:
            _agree(changed)
        if "intrinsics" in changed:
            changed["intrinsics"] = change.intrinsics(changed["intrinsics"].astype(np.float64))
        return changed


def _agree(view: dict[str, NDArray[Any]]) -> None:
    """Filtered shapes: what is seen stays above 0, and overlaps are counted again."""
    shapes = view["shapes"]
    if "segment" in view:
        objects = np.arange(len(shapes))[:, None, None]
        view["shapes"] = shapes = np.where((view["segment"] == objects) & (shapes == 0), np.uint8(1), shapes)
    if "overlap" in view:
        view["overlap"] = (shapes >= COVERED).sum(axis=0, dtype=np.uint8)


def _looked_at(source: Source, path: Path, survey: Survey, words: str, looking: OnProgress) -> layout.Source:
    """Every scene surveyed, every file summed up. Of a folder: its list of names, sizes and checksums."""
    files = list(source.files())
    total, lines, size = len(files) + len(survey.order), [], 0
    for done, scene in enumerate(survey.order, 1):
        survey.look(scene)
        looking(done, total)
    for done, file in enumerate(files, len(survey.order) + 1):
        with plain_errors("reading", file):
            bytes_ = file.stat().st_size
        digest = sha256(file)
        name = file.name if file == path else file.relative_to(path).as_posix()
        lines.append((name, bytes_, digest))
        size += bytes_
        looking(done, total)
    listing = "".join(f"{name} {bytes_} {digest}\n" for name, bytes_, digest in sorted(lines))
    whole = lines[0][2] if files == [path] else hashlib.sha256(listing.encode("utf-8", "surrogateescape")).hexdigest()
    called = path.name or path.resolve().name or "folder"
    return layout.Source(printable(called), size, whole, words)


def _jobs(survey: Survey, plan: DatasetPlan, begun: Mapping[str, Done]) -> list[Job]:
    """What an earlier attempt has not written, a scene at a time, in the order of the source."""
    jobs = []
    for split, scenes in survey.members().items():
        for part in plan.parts(split):
            left = range(part.first + begun[part.folder].scenes, part.last)
            jobs += [(scenes[number], Job(part, number, number + 1)) for number in left]
    return [job for _, job in sorted(jobs)]


def _text(size: Sequence[int]) -> str:
    return f"{size[0]}x{size[1]}"
