"""What a run folder, or a saved model, tells of its own training."""

import json
import math
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from viewslots.errors import UserError
from viewslots.experiments import known_experiment
from viewslots.files import read_bounded, read_json
from viewslots.methods.experiment import Experiment
from viewslots.run_format import CONFIG, FIRST, METRICS_FILE, METRICS_LIMIT, ORIGIN, is_run, pointed, pointer
from viewslots.runs import HUB, Model, Which, find_run, load_run, run_preset, shipped_models

FROM_ELSEWHERE = {"optimisation.pretrained_preset", "optimisation.pretrained_step"}
"""Told by where the first weights came from."""


def model_and_step(run: str, which: Which) -> tuple[Model, int | None]:
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
    if is_run(folder):
        return pointed(folder, which)[1] if pointer(folder, which).is_file() else None
    step = read_json(folder / ORIGIN).get("step") if (folder / ORIGIN).is_file() else None
    return step if type(step) is int else None


def best_or_last(run: Path) -> Which:
    """The best model; the last one where there is none, as all steps saw a single view."""
    return "last" if pointer(run, "last").is_file() and not pointer(run, "best").is_file() else "best"


def training_facts(config: dict[str, Any], step: int | None, run: Path) -> dict[str, Any] | None:
    """How long and on what a run was trained, beside the length of its preset, and the step that is scored."""
    if not config:
        return None
    preset, schedule = known_experiment(config.get("preset")), config.get("schedule")
    preset = preset.tuned() if preset is not None and config.get("tunes") is True else preset
    return {
        "steps": schedule.get("steps") if isinstance(schedule, dict) else None,
        "scored_step": step,
        "preset_steps": None if preset is None else preset.schedule.steps,
        "seconds": training_seconds(run / METRICS_FILE),
        "seed": config.get("seed"),
        "changed": {} if preset is None else changed_settings(config, preset),
        "tuned": config.get("tunes") is True and not teaches_parts(config),
        **taken_before(config, run),
        "data": config.get("world") if config.get("data") == "live" else Path(str(config.get("data"))).name,
        "data_sha256": config.get("data_sha256"),
        "live": config.get("data") == "live",
    }


def changed_settings(config: dict[str, Any], preset: Experiment) -> dict[str, list[Any]]:
    """What is otherwise in a run than in its preset, in a run of this length, by SECTION.FIELD: its own value and that
    of the preset. What only one of the two knows is of another version."""
    schedule = config.get("schedule")
    steps = schedule.get("steps") if isinstance(schedule, dict) else None
    usual = preset.squeezed(steps) if type(steps) is int and steps > 0 else preset
    theirs = {name: asdict(getattr(usual, name)) for name in ("model", "schedule", "optimisation")}
    own, usual_values = flat(config), flat(json.loads(json.dumps(theirs)))
    own["views"], usual_values["views"] = config.get("views", preset.views), preset.views
    both = [name for name in usual_values if name in own and name not in FROM_ELSEWHERE]
    return {name: [own[name], usual_values[name]] for name in both if not alike(name, own[name], usual_values[name])}


def alike(name: str, one: Any, other: Any) -> bool:
    """Counts of steps were rounded in other ways."""
    steps = name.endswith("_steps") and type(one) is type(other) is int
    return abs(one - other) <= 1 if steps else one == other


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return found


def teaches_parts(config: dict[str, Any]) -> bool:
    """Whether a model got something that it had not, all else as it was: a stage of its training."""
    optimisation = config.get("optimisation")
    return isinstance(optimisation, dict) and bool(optimisation.get("parts"))


def taken_before(config: dict[str, Any], run: Path) -> dict[str, Any]:
    """Where the first weights came from, and what it took to come there: steps and seconds of all stages up to the
    weights that each handed over, and of all runs behind --init. None where nothing tells."""
    inside, init = config.get(FIRST), config.get("init")
    if isinstance(inside, dict):
        before, place, name, step = inside, run / FIRST, inside.get("preset"), kept_step(run / FIRST)
    elif isinstance(init, str):
        place, step = find_run(init) if init in shipped_models() else Path(init), config.get("init_step")
        name = Path(init).name if Path(init).is_absolute() else init  # which may say in words where to look
        if place.is_absolute() and not place.exists():  # its earlier stages are not known
            return {"init": name, "init_steps": None, "init_seconds": None}
        before = run_preset(place) if (place / CONFIG).is_file() else {}
    else:
        return {"init": None, "init_steps": None, "init_seconds": None}
    schedule = before.get("schedule")
    if type(step) is not int:
        step = schedule.get("steps") if isinstance(schedule, dict) else None
    own = [step, training_seconds(place / METRICS_FILE, math.inf if step is None else step)]
    if isinstance(before.get(FIRST), dict) or isinstance(before.get("init"), str):
        earlier = taken_before(before, place)
        own = [
            None if mine is None or theirs is None else round(mine + theirs, 1)
            for mine, theirs in zip(own, (earlier["init_steps"], earlier["init_seconds"]), strict=True)
        ]
    return {"init": name, "init_steps": own[0], "init_seconds": own[1]}


def kept_step(run: Path) -> int | None:
    """Of the best model of a stage, from which the next one starts."""
    with suppress(UserError):
        return scored_step(str(run), "best")
    return None


def training_seconds(metrics: Path, until: float = math.inf) -> float | None:
    """Time that the steps of a run took, validations included, however often it was stopped; None where none tells.

    Rows of figures tell the rate since the row before.
    """
    try:
        lines = read_bounded(metrics, METRICS_LIMIT).splitlines()
    except UserError:
        return None
    total, last, told = 0.0, 0, False
    for line in lines:
        with suppress(ValueError, KeyError, TypeError, ArithmeticError, RecursionError):
            row = json.loads(line)
            if row["kind"] == "train":
                step = min(row["step"], until)
                total += max(step - last, 0) / row["steps_per_second"]
                last, told = step, True
    return round(total, 1) if told else None
