"""Which scene goes to which split: the source's own; or every tenth, at least one, to valid and the rest to train.

`--split NAME=RULE` moves scenes, and where it moves some to valid, no others go there by default.

A rule is a list with commas of numbers (scenes count from 0 in the order of the source), ranges `A-B` with both ends,
`A-B:STEP`, and patterns of names such as `kitchen*`. Scenes of the split `none` are left out.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase

from viewslots.data.format import SPLIT_NAME
from viewslots.data.sources.source import Source
from viewslots.errors import UserError, did_you_mean
from viewslots.files import shown

USUAL = ("train", "valid", "test1", "test2")
NONE = "none"
EVERY = 10
RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?(?::(\d{1,9}))?")


def split_scenes(source: Source, rules: Sequence[str], damaged: Collection[int] = ()) -> dict[str, list[int]]:
    """Split -> its scenes in the order of the source; the usual splits first, no empty ones.

    Damaged scenes go nowhere, but rules count and name them: they are those of the source.
    """
    moved = _moved(source.names, rules)
    whole = [scene for scene in range(len(source.names)) if scene not in damaged]
    free = [scene for scene in whole if scene not in moved]
    held_out = set() if "valid" in moved.values() else set(free[EVERY - 1 :: EVERY] or free[-1:])
    chosen: dict[str, list[int]] = {}
    for scene in whole:
        if scene in moved:
            split = moved[scene]
        elif source.splits is not None:
            split = source.splits[scene] or NONE
        else:
            split = "valid" if scene in held_out else "train"
        chosen.setdefault(split, []).append(scene)
    chosen.pop(NONE, None)
    if not chosen:
        raise UserError("--split: leaves no scene in any split")
    order = [*(split for split in USUAL if split in chosen), *sorted(set(chosen) - set(USUAL))]
    return {split: chosen[split] for split in order}


def _moved(names: Sequence[str], rules: Sequence[str]) -> dict[int, str]:
    moved: dict[int, str] = {}
    for rule in rules:
        split, equals, what = rule.partition("=")
        if not equals:
            raise UserError(f"--split {shown(rule)}: must be NAME=RULE, such as valid=40-49 or test1=kitchen*")
        _require_name(split, rule)
        for scene in _matching(names, what, rule):
            if moved.setdefault(scene, split) != split:
                raise UserError(f"--split: scene {shown(names[scene])} is asked for in {moved[scene]} and in {split}")
    return moved


def _require_name(split: str, rule: str) -> None:
    """A misspelt name would make a split that no command looks at."""
    known = (*USUAL, NONE)
    if split in known or (split.startswith("test") and SPLIT_NAME.fullmatch(split)):
        return
    meant = did_you_mean(split, known).strip() or f"must be {', '.join(known)}, or begin with test"
    raise UserError(f"--split {shown(rule)}: no split is called {shown(split)}; {meant}")


def _matching(names: Sequence[str], what: str, rule: str) -> Iterator[int]:
    for part in what.split(","):
        if match := RANGE.fullmatch(part):
            first = int(match[1])
            last, step = int(match[2] or first), int(match[3] or 1)
            if not first <= last < len(names) or step < 1:
                raise UserError(f"--split {shown(rule)}: {part} is no range within the scenes 0..{len(names) - 1}")
            yield from range(first, last + 1, step)
            continue
        found = [scene for scene, name in enumerate(names) if fnmatchcase(name, part)]
        if not found:
            raise UserError(f"--split {shown(rule)}: no scene is called {shown(part)}; the first is {shown(names[0])}")
        yield from found
