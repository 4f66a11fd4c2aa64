"""Who is evaluated: from what a user names to a method, and what results tell of it."""

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from viewslots.data.format import Plan
from viewslots.errors import UserError
from viewslots.experiments import known_experiment, slots_for
from viewslots.files import FIRST, METRICS_FILE, METRICS_LIMIT, read_bounded, read_json
from viewslots.methods.contract import Method, Search, changed_search
from viewslots.methods.registry import untrained_method
from viewslots.runs import CONFIG, HUB, ORIGIN, RUN_KIND, Which, find_run, load_run, run_preset


def find_subject(run: str, which: Which, device: str) -> tuple[Method, dict[str, Any]]:
    """The method, on the device, and what the results tell of it. A folder goes before a method's name."""
    untrained = None if Path(run).is_dir() else untrained_method(run)
    if untrained is not None:
        return untrained, {"run": run, "method": untrained.name, "preset": None, "training": None}
    model, step = model_and_step(run, which)
    config = run_preset(run)
    about = {"run": Path(run).resolve().name if Path(run).exists() else run, "method": model.name, "which": which}
    return model.to(device), about | {
        "preset": config.get("preset"),
        "parameters": sum(part.numel() for part in model.parameters()),
        "trained_slots": model.slots,
        "image_size": list(model.image_size),
        "training": training_facts(config, step, Path(run)),
    }


def model_and_step(run: str, which: Which) -> tuple[Any, int | None]:
    """A trained model, and its training step."""
    while True:
        step = scored_step(run, which)
        model = load_run(run, which=which)
        if scored_step(run, which) == step:  # else training kept a better model while we read
            return model, step


def scored_step(source: str, which: Which) -> int | None:
    """The training step of the model that is scored, as its folder tells it; None where nothing tells."""
    if source.startswith(HUB):
        return None
    folder = find_run(source)
    is_run = read_json(folder / CONFIG).get("kind") == RUN_KIND
    file = folder / (f"{which}.json" if is_run else ORIGIN)
    step = read_json(file).get("step") if file.is_file() else None
    return step if type(step) is int else None


def training_facts(config: dict[str, Any], step: int | None, run: Path) -> dict[str, Any] | None:
    """How long and on what a run was trained, beside the length of its preset, and the step that is scored."""
    if not config:
        return None
    preset, schedule = known_experiment(config.get("preset")), config.get("schedule")
    before = value if isinstance(value := config.get(FIRST), dict) else None
    preset = preset.tuned() if preset is not None and config.get("tunes") is True else preset
    return {
        "steps": schedule.get("steps") if isinstance(schedule, dict) else None,
        "scored_step": step,
        "preset_steps": None if preset is None else preset.schedule.steps,
        "seconds": training_seconds(run / METRICS_FILE),
        "seed": config.get("seed"),
        "tuned": config.get("tunes") is True and before is None,
        **(first_stage(config) if before is None else stages_before(before, run / FIRST)),
        "data": config.get("world") if config.get("data") == "live" else Path(str(config.get("data"))).name,
        "data_sha256": config.get("data_sha256"),
        "live": config.get("data") == "live",
    }


def first_stage(config: dict[str, Any]) -> dict[str, Any]:
    """Where the first weights came from, at which step, and what it took to come there, where that run still lies."""
    init, step = config.get("init"), config.get("init_step")
    if not isinstance(init, str):
        return {"init": None, "init_steps": None, "init_seconds": None}
    facts = stage_before(run_preset(init) if (Path(init) / CONFIG).is_file() else {}, Path(init))
    if type(step) is int:
        facts |= {"init_steps": step, "init_seconds": training_seconds(Path(init) / METRICS_FILE, step)}
    return facts | {"init": Path(init).name}


def stages_before(config: dict[str, Any], run: Path) -> dict[str, Any]:
    """Of the stage before, with what all stages took up to its end."""
    facts, before = stage_before(config, run), config.get(FIRST)
    for name, value in (stages_before(before, run / FIRST) if isinstance(before, dict) else {}).items():
        if isinstance(value, int | float) and isinstance(facts[name], int | float):
            facts[name] = round(facts[name] + value, 1)
    return facts


def stage_before(config: dict[str, Any], run: Path) -> dict[str, Any]:
    schedule = config.get("schedule")
    return {
        "init": config.get("preset"),
        "init_steps": schedule.get("steps") if isinstance(schedule, dict) else None,
        "init_seconds": training_seconds(run / METRICS_FILE),
    }


def training_seconds(metrics: Path, until: float = math.inf) -> float | None:
    """Time that the steps of a run took, validations included, however often it was stopped; None where none tells.

    Rows of figures tell the rate since the row before.
    """
    try:
        lines = read_bounded(metrics, METRICS_LIMIT).splitlines()
    except UserError:
        return None
    total, last = 0.0, 0
    for line in lines:
        with suppress(ValueError, KeyError, TypeError, ArithmeticError, RecursionError):
            row = json.loads(line)
            if row["kind"] == "train":
                step = min(row["step"], until)
                total += max(step - last, 0) / row["steps_per_second"]
                last = step
    return round(total, 1) if last else None


def default_slots(about: Mapping[str, Any], data: Plan, split: str) -> int:
    """As trained, or as the paper tests with more objects; what learns nothing takes the data set's numbers: the
    paper's for its data sets, else as many as there are objects in a scene of the split at most."""
    trained = known_experiment(about["preset"])
    if not split.startswith("test2") and "trained_slots" in about:
        return int(about["trained_slots"])
    if trained is not None and split.startswith("test2"):
        return trained.test_slots
    slots = slots_for(data.preset, split) or data.splits[split].slots
    if not slots:
        known = data.preset or "this data set"
        raise UserError(f"--slots: say how many objects may be found in {known}; nothing tells")
    return slots


def search_asked_for(default: Search | None, **asked: int | None) -> Search | None:
    """The method's own search with what the user of a command changes in it."""
    try:
        return changed_search(default, **asked)
    except UserError as error:
        raise UserError(f"--starts, --looks, --refine or --spare: {error}") from None
