"""A training with all its stages: folders made or gone on with, weights handed on, each stage run to its end."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from viewslots.errors import UserError
from viewslots.experiments import experiment
from viewslots.run_format import CONFIG, FIRST
from viewslots.run_record import best_or_last, model_and_step
from viewslots.runs import load_run
from viewslots.training.checkpoint import saved_steps
from viewslots.training.distributed import Ranks
from viewslots.training.log import Console
from viewslots.training.loop import Outcome, Training, facts_at_end
from viewslots.training.notes import notes
from viewslots.training.parts import assemble
from viewslots.training.run import RunFolder
from viewslots.training.settings import LIVE, RunSettings
from viewslots.training.start import FREE, new_settings, pinned_model, resume_run
from viewslots.training.step import Model
from viewslots.training.weights import begun_anew, require_fit
from viewslots.types import OnProgress


@dataclass(frozen=True)
class Call:
    """A training as somebody asks for it, and where it tells what happens."""

    run: Path
    given: dict[str, Any]
    """Fields of `plan.Asked` by name, but for those that were left out."""
    device: torch.device
    fast: bool
    resume: bool
    say: Callable[[str], None]
    rendering: Callable[[bool], AbstractContextManager[OnProgress]]
    """Shows how many live scenes are rendered, if it is to show anything."""


@dataclass
class Opened:
    """A stage that is to run: its folder, what it is to hold, the weights to start from if not those of the seed."""

    folder: RunFolder
    settings: RunSettings
    weights: Model | None = None


def train_stages(call: Call, ranks: Ranks) -> Outcome:
    """Rank 0 opens the folders and tells the others what they say; where it cannot, it alone says why."""
    with ExitStack() as stack:
        opened: list[Opened] = []

        def begin() -> str:
            opened.extend(open_stages(call, ranks, stack))
            return json.dumps([stage.settings.to_json() for stage in opened])

        stages = [RunSettings.from_json(values) for values in json.loads(ranks.told(begin))]
        outcome = None
        for number, settings in enumerate(stages):
            if outcome is not None and opened:
                opened[number].weights = finished_model(outcome.run)
            stage = opened[number] if opened else None
            outcome = run_stage(call, stage, settings, ranks, stages[-1])
        assert outcome is not None
        return outcome


def run_stage(call: Call, opened: Opened | None, settings: RunSettings, ranks: Ranks, last: RunSettings) -> Outcome:
    """To its end. `opened` on rank 0 alone; `last`: the stage that all lead to."""
    folder, weights = (None, None) if opened is None else (opened.folder, opened.weights)
    number, count = len(settings.stages), len(last.stages)
    stage = f" of stage {number}" if count > 1 else ""
    if settings.data == LIVE:  # asked before scenes are drawn
        facts = None if folder is None else facts_at_end(folder, settings.steps)
        if ranks.most(facts is not None):
            if folder is None or facts is None:
                return Outcome(Path(), settings.steps, None, None)
            call.say(finished_already(folder, settings.steps, stage))
            return Outcome(folder.path, settings.steps, facts["best"], facts["last"])
    with call.rendering(ranks.first and settings.data == LIVE) as progress:
        parts = assemble(settings, call.device, ranks, weights, progress)
    with Console(settings.steps, parts.model.headline or parts.model.terms, ranks.first, call.say) as console:
        if count > 1:
            console.stage(number, count, settings.all_steps - settings.steps, last.all_steps)
        training = Training(settings, parts, folder, ranks, console, goes_on=number < count)
        training.resume()
        if folder is not None and training.done == settings.steps and not training.owes_validation:
            console.say(finished_already(folder, settings.steps, stage))
        elif training.done:
            console.say(f"going on from step {training.done:,} of {settings.steps:,}{stage}")
        return training.run()


def finished_already(folder: RunFolder, steps: int, stage: str) -> str:
    return (
        f"{folder.path} was finished already, at step {steps}{stage}: nothing is left to train. For more steps begin "
        f"a new run: --init {folder.path} starts it from the best model of this one"
    )


def open_stages(call: Call, ranks: Ranks, stack: ExitStack) -> list[Opened]:
    """All stages of a run that are not done yet, in their order; `stack` closes their folders."""
    last = resumed(call) if call.resume else begun(call, ranks)
    stack.enter_context(last.folder)
    return with_stages_before(call, last, stack)


def with_stages_before(call: Call, stage: Opened, stack: ExitStack) -> list[Opened]:
    """This stage after those before it that are not done yet. Where the one before is done, it starts from that."""
    settings, place = stage.settings.first, stage.folder.path / FIRST
    if settings is None or saved_steps(stage.folder.checkpoints):
        return [stage]
    if not (place / CONFIG).exists():
        folder = RunFolder.create(place, settings.to_json())
    else:
        free = {name: value for name, value in call.given.items() if name in ("data", *FREE)}
        folder, settings = resume_run(place, free, call.fast)
    stack.enter_context(folder)
    if facts_at_end(folder, settings.steps) is not None:
        call.say(f"stage {len(settings.stages)} is done: going on from its best model, in {place}")
        return [replace(stage, weights=finished_model(place))]
    return [*with_stages_before(call, Opened(folder, settings), stack), stage]


def begun(call: Call, ranks: Ranks) -> Opened:
    """A new run. Its folder, which is that of its last stage, is made when nothing can be refused any more."""
    given = call.given
    start = None if "init" not in given else weights_of(given["init"], given.get("preset"))
    known = {} if start is None else {"start": start.model, "init_step": start.step}
    settings = new_settings(given | known, "bf16" if call.device.type == "cuda" else "fp32", call.fast)
    ranks.part(settings.batch)
    weights = first_weights(call, settings, start)
    folder = RunFolder.create(call.run, settings.to_json())
    for note in notes(settings, given):
        call.say(note)
    return Opened(folder, settings, weights)


def resumed(call: Call) -> Opened:
    """One that goes on; where nothing is saved yet, from the weights that it was begun with."""
    folder, settings = resume_run(call.run, call.given, call.fast)
    try:
        begins = settings.init is not None and not saved_steps(folder.checkpoints)
        start = weights_of(str(settings.init), settings.preset) if begins else None
        if start is not None and settings.init_step not in (None, start.step):
            raise UserError(
                f"{call.run} was begun with step {settings.init_step} of {settings.init}, which now has step "
                f"{start.step} to start from; begin a new run"
            )
        return Opened(folder, settings, first_weights(call, settings, start))
    except BaseException:
        folder.close()
        raise


@dataclass(frozen=True)
class Start:
    """The model behind --init."""

    model: Model
    step: int | None
    origin: str
    """Where it comes from, in words."""


def weights_of(init: str, preset: str | None) -> Start:
    """The step that the experiment asks for where that run has kept it, else its best model."""
    pinned = None if preset is None else pinned_model(Path(init), experiment(preset).optimisation)
    if pinned is not None:
        return Start(*pinned, f"step {pinned[1]} of {init}, kept for this")
    model, step = model_and_step(init, "best")
    return Start(model, step, f"the best model of {init}" + ("" if step is None else f", step {step}"))


def first_weights(call: Call, settings: RunSettings, start: Start | None) -> Model | None:
    """Those of --init, if they fit; says what is carried over."""
    if start is None:
        return None
    weights = start.model
    require_fit(settings, weights)
    theirs = vars(weights.config)
    others = [
        f"{name} {theirs[name]} (now {value})" if isinstance(value, bool | int | float) else f"another {name}"
        for name, value in vars(settings.model).items()
        if name != "start" and theirs.get(name, value) != value
    ]
    anew = begun_anew(settings, weights)
    call.say(
        f"starting from {start.origin}"
        + (f", which had {', '.join(others)}" if others else "")
        + (f"; all its weights but {', '.join(anew)}, which begins anew" if anew else "")
    )
    return weights


def finished_model(run: Path) -> Model:
    """What the next stage starts from."""
    return load_run(run, which=best_or_last(run))
