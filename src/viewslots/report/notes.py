"""What a number owes to its circumstances: renderer, schedule, network, seeds, size of the test set."""

from collections.abc import Iterator, Sequence

from viewslots.files import shown
from viewslots.methods.names import METHODS, entry
from viewslots.metrics.extras import SHADOW
from viewslots.report.rows import DATASETS, FEWEST_SCENES, PaperTable, Result, resized, search_of, title
from viewslots.types import how_resized

PAPER_SCENES = {"clevr": 1000, "dsprites": 1000, "abstract": 1000}
"""Test scenes of the paper; 100 for the multi-view sets."""
NO_NETWORK = ("model.start.", "model.slots")
MOST_SETTINGS = 8
"""Named in a note."""
FEW_FOUND = 0.5
"""Share of the pairs of overlapping objects below which OOA is mostly about pairs that were not found."""


def legend(results: Sequence[Result]) -> tuple[str, ...]:
    """What a reader must know before the first table."""
    counts = sorted({len(result["repeats"]) for result in results})
    several = [count for count in counts if count > 1]
    ours = (
        f"mean ± population standard deviation over {' or '.join(map(str, several))} stochastic answers of one trained "
        f"model{', or the score of a single one' if len(several) < len(counts) else ''}"
        if several
        else "the score of one stochastic answer of one trained model"
    )
    return (
        f"Our cells: {ours}, then the 95 % bootstrap interval over test scenes. The paper's cells: mean ± standard "
        "deviation over five answers.",
        "▲ or ▼ marks a difference where our whole interval lies beyond twice the paper's standard deviation; results "
        f"of fewer than {FEWEST_SCENES} scenes have no marks. What the paper's own choice of scenes leaves open is not "
        "known and not in the marks. N/A: the method has no such answer, or nobody measured it.",
    )


def general_notes(results: Sequence[Result]) -> tuple[str, ...]:
    floor = (
        "The floor is k-means on colours and places with as many clusters; it learns nothing."
        if any(not entry(result["method"]).learns for result in results)
        else "There is no floor in these tables; viewslots evaluate kmeans --data ... --out ... gives one."
    )
    searched = (
        "Plain answers follow the paper's protocol: one pass of the inference, and a sample of what it finds. Searched "
        "answers do not: each is the best of several starts by description length, with objects pruned that cost more "
        "nats than they save, in some rows with further looks for missed objects and gradient steps on the codes. "
        "Viewpoints of held-out views get gradient steps in every search. No search sees the truth. All else is the "
        "same."
    )
    return (
        *([searched] if any(search_of(result) is not None for result in results) else []),
        "Every number of ours comes from one training run unless several are listed: other training seeds may differ "
        "by more than the intervals say.",
        floor,
        f"Shadow: background where one object alone takes at least {SHADOW / 255:.0%} of the direct light. R2 of "
        "cameras: probes fitted on the view codes of the validation scenes. Held-out views: the scene comes from the "
        "M views alone, and only the viewpoint of the held-out picture is estimated.",
    )


def result_notes(result: Result, paper: PaperTable | None) -> tuple[str, ...]:
    parts = (_pictures, _resized, _size, _missing, _order, _training, _settings, _network, _slots, _made)
    return tuple(note for part in parts for note in part(result, paper))


def _pictures(result: Result, paper: PaperTable | None) -> Iterator[str]:
    data = result["data"]
    preset = str(data.get("preset"))
    checksum = str(data.get("sha256"))[:12]
    if data.get("source"):
        yield f"Pictures: imported from {data['source']} (data set {checksum})."
    elif preset.startswith("clevr"):
        yield f"Pictures: our ray tracer, not Blender; scenes of the same rules, not the paper's (data set {checksum})."
    else:
        yield f"Pictures: drawn by our own code; scenes of the same rules, not the paper's (data set {checksum})."


def _resized(result: Result, paper: PaperTable | None) -> Iterator[str]:
    if sizes := resized(result):
        old, new = (" x ".join(map(str, size)) for size in sizes)
        yield (
            f"{title(result)}: pictures and truth of {old} pixels were {how_resized(*sizes)} to the {new} that the "
            "model takes."
        )


def _size(result: Result, paper: PaperTable | None) -> Iterator[str]:
    preset = result["data"].get("preset")
    wanted = PAPER_SCENES.get(str(preset), 100)
    if preset in DATASETS and result["scenes"] != wanted:
        yield f"{title(result)}: {result['scenes']} test scene{'s' * (result['scenes'] != 1)}; the paper has {wanted}."


def _missing(result: Result, paper: PaperTable | None) -> Iterator[str]:
    for truth, scores in (result.get("missing") or {}).items():
        yield f"{title(result)}: the data set does not tell {truth}, so there is no {', '.join(map(str, scores))}."


def _order(result: Result, paper: PaperTable | None) -> Iterator[str]:
    found = ((result.get("extras") or {}).get("pairs_found") or {}).get("mean")
    if found is not None and found < FEW_FOUND:
        yield (
            f"{title(result)}: of the pairs of overlapping objects {found:.0%} have both found. OOA also counts the "
            "others, in the order that the method says of whatever slots are left, so here it tells little."
        )


def _training(result: Result, paper: PaperTable | None) -> Iterator[str]:
    if not entry(result["method"]).learns:
        return
    training = result.get("training")
    if not training or not training.get("steps"):
        yield f"{title(result)}: how long it was trained is not on record."
        return
    steps, wanted, scored = training["steps"], training.get("preset_steps"), training.get("scored_step")
    length = f"{steps:,} steps" + (f" of the preset's {wanted:,} ({steps / wanted:.0%})" if wanted else "")
    if training.get("seconds"):
        length += f" in {training['seconds'] / 60:.1f} minutes"
    where = f"scenes of {training.get('data')}" + (" rendered while training" if training.get("live") else "")
    before = f" after {training['init_steps']:,} steps" if training.get("init_steps") else ""
    first = f", starting from {training['init']}{before}" if training.get("init") else ""
    yield f"{title(result)}: trained for {length} on {where}, training seed {training.get('seed')}{first}."
    if scored is not None and scored != steps:
        yield f"{title(result)}: the model that is scored is that of step {scored:,} of {steps:,}."


def _settings(result: Result, paper: PaperTable | None) -> Iterator[str]:
    """What a share of the preset's steps does not tell."""
    changed = (result.get("training") or {}).get("changed") or {}
    told = [f"{name} {shown(own)} (not {shown(usual)})" for name, (own, usual) in changed.items()]
    if told:
        more = f" and {len(told) - MOST_SETTINGS} more" if len(told) > MOST_SETTINGS else ""
        yield f"{title(result)}: not as in the preset: {', '.join(told[:MOST_SETTINGS])}{more}."


def _network(result: Result, paper: PaperTable | None) -> Iterator[str]:
    count = result.get("parameters")
    size = f"{count / 1e6:.1f} M parameters" if isinstance(count, int) else ""
    if not entry(result["method"]).learns or is_papers_network(result):
        return
    papers_own = {one.paper_row for one in METHODS.values() if one.papers_own}
    near = entry(result["method"]).paper_row in papers_own
    name = "not the paper's network" if near else "our own code of this method"
    yield f"{title(result)}: {name}{f' ({size})' if size else ''}."


def is_papers_network(result: Result) -> bool:
    """A method of the paper in the size of the paper: `clevr-m1`, or in full `ocloc/clevr-m1`, as it is there. How its
    weights start, and how many slots it has, is no part of a network."""
    variant, _, data = str(result.get("preset")).rpartition("/")
    changed = (result.get("training") or {}).get("changed") or {}
    if any(name.startswith("model.") and not name.startswith(NO_NETWORK) for name in changed):
        return False
    return entry(result["method"]).papers_own and variant in ("", result["method"]) and data in DATASETS


def _slots(result: Result, paper: PaperTable | None) -> Iterator[str]:
    if paper is not None and result["slots"] != paper.slots:
        yield f"{title(result)}: evaluated with K = {result['slots']}; the paper's K is {paper.slots}."


def _made(result: Result, paper: PaperTable | None) -> Iterator[str]:
    """Every number has a command, a commit and a seed."""
    origin = result.get("provenance") or {}
    where = f"commit {origin.get('commit')}, seed {result.get('seed')}, {origin.get('gpu') or origin.get('cpu')}"
    yield f"{title(result)}: made by {origin.get('command')} ({where})."
