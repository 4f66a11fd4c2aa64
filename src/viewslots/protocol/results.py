"""results.json: scores with everything needed to judge them and to make them again."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from viewslots.data.format import META
from viewslots.data.store import Store
from viewslots.errors import UserError
from viewslots.files import NotAnObject, plain_errors, read_json, sha256, shown
from viewslots.metrics.score import METRICS
from viewslots.protocol.plan import Plan
from viewslots.protocol.repeats import Repeats, Values, bootstrap, by_objects, by_occlusion, estimates

FORMAT = "viewslots results"
FORMAT_VERSION = 1
SCORES = "viewslots scores"
"""What `viewslots score` writes."""
KINDS = ("paper", "pooled", "extras")
LARGEST = 10**18
"""No number of a result comes near; larger ones, infinities and NaN are damage."""


def summary(repeats: Repeats, seed: int) -> dict[str, Any]:
    """Means, spreads and intervals of everything; then each repeat, and groups of scenes."""
    singles = [repeats.one(index) for index in range(len(repeats.scores))]

    def statistic(scenes: Int[np.ndarray, "S"]) -> Values:
        return {
            f"{kind} {name}": value for kind, part in repeats.select(scenes).items() for name, value in part.items()
        }

    intervals = bootstrap(statistic, repeats.scenes, seed)
    found: dict[str, Any] = {}
    for kind in KINDS:
        own = {name: intervals[f"{kind} {name}"] for name in singles[0][kind] if f"{kind} {name}" in intervals}
        parts = estimates([single[kind] for single in singles], own)
        found[kind] = {name: None if part is None else asdict(part) for name, part in parts.items()}
    return found | {
        "repeats": singles,
        "by_objects": by_objects(repeats),
        "by_occlusion": by_occlusion(repeats),
    }


def result(repeats: Repeats, store: Store, plan: Plan, about: Mapping[str, Any]) -> dict[str, Any]:
    """The whole content of results.json. `about` tells of the method and the machine."""
    size = store.split(plan.split).size
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "task": "decomposition" if plan.new_views is None else "viewpoint estimation",
        **about,
        "split": plan.split,
        "scenes": repeats.scenes,
        "views": plan.views,
        "new_views": plan.new_views,
        "slots": plan.slots,
        "seed": plan.seed,
        "batch": plan.batch,
        "search": None if plan.search is None else asdict(plan.search),
        "probes": plan.probes,
        "missing": {name: list(scores) for name, scores in repeats.missing.items()},
        "std": "population standard deviation over repeats",
        "interval": "95 % bootstrap over scenes",
        "data": data_facts(store) | {"image_size": [size.height, size.width]},
        **summary(repeats, plan.seed),
    }


def data_facts(store: Store) -> dict[str, Any]:
    """Which data set; its checksum is that of meta.json, which holds the checksums of all its files."""
    plan = store.meta.plan
    source = None if plan.source is None else plan.source.name
    names = ("preset", "generator", "seed", "quality")
    facts = {name: getattr(plan, name) for name in names} | {"source": source, "views": plan.views}
    train = plan.splits["train"].scenes if "train" in plan.splits else None
    return {"name": store.path.resolve().name} | facts | {"train_scenes": train, "sha256": sha256(store.path / META)}


def find_results(
    sources: Sequence[Path], formats: Sequence[str] = (FORMAT,), needed: bool = True
) -> list[tuple[Path, dict[str, Any]]]:
    """Result files that were named, and all below the folders that were named. `needed`: a folder without any is an
    error."""
    checks = {FORMAT: checked, SCORES: checked_scores}
    found: dict[Path, dict[str, Any]] = {}
    for source in sources:
        before = len(found)
        for path in candidates(source):
            try:
                value = read_json(path)
            except NotAnObject:
                if path == source:
                    raise
                continue  # somebody else's, beside ours
            if value.get("format") in formats:
                found.setdefault(path.resolve(), checks[value["format"]](value, path))
            elif path == source:
                raise UserError(f"{path}: not the result of evaluate, estimate-viewpoints or score")
        if needed and len(found) == before and source.is_dir():
            raise UserError(f"{source}: no results below it; make some with viewslots evaluate {source} --out ...")
    return sorted(found.items())


def candidates(source: Path) -> Iterator[Path]:
    """The file that was named, or those below a folder that may be results."""
    with plain_errors("reading", source):
        if not source.exists():
            raise UserError(
                f"{source}: no such file or folder; name results of viewslots evaluate, or a folder of some"
            )
        if not source.is_dir():
            yield source
            return
        below = sorted(source.rglob("*.json"))
    for path in below:
        if path.parent == source or path.parent.name == "results" or path.name.startswith("results"):
            yield path


def checked(value: dict[str, Any], path: Path) -> dict[str, Any]:
    """A result that a report can rely on: names are names, scores are scores."""
    version = value.get("format_version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise UserError(f"{path}: results of a newer format; update viewslots")
    if problem := next(_problems(value), None):
        raise UserError(f"{path}: damaged results ({problem})")
    return value


def checked_scores(value: dict[str, Any], path: Path) -> dict[str, Any]:
    """The same for what `score` has written."""
    protocol, kinds = value.get("protocol"), [value[kind] for kind in ("scores", *KINDS[:2]) if kind in value]
    texts = [value.get("prediction"), value.get("truth"), value.get("split") or ""]
    texts += [protocol.get(name) for name in ("name", "paper", "contract")] if isinstance(protocol, dict) else [None]
    counts = (value.get("scenes"), value.get("views"))
    good = kinds and all(isinstance(kind, dict) for kind in kinds) and all(isinstance(text, str) for text in texts)
    if not good or not all(map(_is_count, counts)):
        raise UserError(f"{path}: damaged results of score")
    if not all(one is None or _is_number(one) for kind in kinds for one in kind.values()):
        raise UserError(f"{path}: damaged results of score (see {shown(kinds[0])})")
    return value


def _problems(value: Mapping[str, Any]) -> Iterator[str]:
    wanted = {"data": dict, "split": str, "method": str, "task": str}
    wanted |= {"repeats": list, "by_objects": dict, "by_occlusion": dict} | dict.fromkeys(KINDS, dict)
    for name, expected in wanted.items():
        if not isinstance(value.get(name), expected):
            yield f"{name} is {shown(value.get(name))}"
    optional = {"run": str, "preset": str, "training": dict, "provenance": dict}
    for name, expected in (optional | {"search": dict, "care": dict, "missing": dict}).items():
        if not isinstance(value.get(name), expected | None):
            yield f"{name} is {shown(value.get(name))}"
    for name in ("views", "slots", "scenes", "new_views", "parameters"):
        if not _is_count(value.get(name)) and (name in ("views", "slots", "scenes") or value.get(name) is not None):
            yield f"{name} is {shown(value.get(name))}"
    training = value.get("training") or {}
    for name in ("steps", "scored_step", "preset_steps", "init_steps"):
        if training.get(name) is not None and not _is_count(training[name]):
            yield f"{name} of training is {shown(training[name])}"
    changed = training.get("changed") or {}
    if not (isinstance(changed, dict) and all(isinstance(pair, list) and len(pair) == 2 for pair in changed.values())):
        yield f"changed of training is {shown(changed)}"
    for name in ("seconds", "init_seconds"):
        if training.get(name) is not None and not _is_number(training[name]):
            yield f"{name} of training is {shown(training[name])}"
    for name in ("search", "care"):
        if not all(map(_is_count, (value.get(name) or {}).values())):
            yield f"{name} is {shown(value[name])}"
    for scores in (value.get("missing") or {}).values():
        if not isinstance(scores, list) or not all(isinstance(score, str) for score in scores):
            yield f"missing is {shown(value['missing'])}"
    told = [(value, name) for name in ("seed", "which")] + [(training, name) for name in ("seed", "data", "init")]
    told += [(value["data"], "sha256")]
    told += [(value.get("provenance") or {}, name) for name in ("commit", "command", "gpu", "cpu")]
    for part, name in told:
        if not (isinstance(part.get(name), str | None) or _is_number(part[name])):
            yield f"{name} is {shown(part[name])}"
    for size in (value.get("image_size"), value["data"].get("image_size")):
        if size is not None and not (isinstance(size, list) and len(size) == 2 and all(map(_is_number, size))):
            yield f"image_size is {shown(size)}"
    for name in ("preset", "source", "name"):
        if not isinstance(value["data"].get(name), str | None):
            yield f"{name} of data is {shown(value['data'].get(name))}"
    yield from (f"no {kind} {name}" for kind in KINDS[:2] for name in METRICS if name not in value[kind])
    parts = ((f"{kind} {name}", part) for kind in KINDS for name, part in value[kind].items())
    yield from (f"{name} is {shown(part)}" for name, part in parts if not _is_estimate(part))
    groups = [*value["by_objects"].values(), *value["by_occlusion"].values()]
    yield from (f"a group of scenes is {shown(group)}" for group in groups if not _is_group(group))


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and -LARGEST < value < LARGEST  # type: ignore[operator]


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < LARGEST


def _is_estimate(part: object) -> bool:
    """Its interval is null where there was a single scene."""
    if not isinstance(part, dict) or not {"low", "high"} <= set(part):
        return part is None
    names = ("mean", "std") if part["low"] is None and part["high"] is None else ("mean", "std", "low", "high")
    return all(_is_number(part.get(name)) for name in names)


def _is_group(group: object) -> bool:
    if not isinstance(group, dict) or not isinstance(group.get("pooled"), dict):
        return False
    hidden = group.get("hidden", [0, 0])
    if not isinstance(hidden, list) or len(hidden) != 2 or not all(map(_is_number, [group.get("scenes"), *hidden])):
        return False
    return all(value is None or _is_number(value) for value in group["pooled"].values())
