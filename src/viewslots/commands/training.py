"""train."""

import json
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, UseAppendAction, arg

from viewslots.errors import UserError
from viewslots.files import CONFIG, FIRST
from viewslots.methods.names import METHODS
from viewslots.terminal import Device, Progress, pick_device, print_json, say

if TYPE_CHECKING:
    import torch

    from viewslots.training.distributed import Ranks
    from viewslots.training.loop import Outcome
    from viewslots.training.run import RunFolder
    from viewslots.training.settings import RunSettings
    from viewslots.training.step import Model

LEARNING = [name for name, method in METHODS.items() if method.learns]


def choice(metavar: str, default: str) -> Any:
    """Help for an option that has no value of its own unless given: a resumed run then keeps what it has."""
    return arg(metavar=metavar, help_behavior_hint=f"(default: {default})")


def train(
    experiment: Annotated[Positional[str | None], choice("EXPERIMENT", "that of the run, with --resume")] = None,
    /,
    *,
    run: Path,
    data: Annotated[str | None, choice("DIR|live", "that of the run, with --resume")] = None,
    steps: Annotated[int | None, choice("N", "as in the experiment")] = None,
    seed: Annotated[int | None, choice("S", "0")] = None,
    seeds: Annotated[str | None, choice("S,S,...", "one run")] = None,
    resume: bool = False,
    init: Annotated[str | None, choice("MODEL", "random weights, or those of the stage before")] = None,
    batch: Annotated[int | None, choice("N", "as in the experiment")] = None,
    learning_rate: Annotated[float | None, choice("RATE", "as in the experiment")] = None,
    views: Annotated[int | None, choice("M", "as in the experiment: 4, or 1 of single pictures")] = None,
    slots: Annotated[int | None, choice("K", "as in the experiment")] = None,
    method: Annotated[str | None, choice("{" + ",".join(LEARNING) + "}", "that of the experiment")] = None,
    validate_every: Annotated[int | None, choice("N", "a twentieth of the run")] = None,
    checkpoint_every: Annotated[int | None, choice("N", "a twentieth of the run, 5000 at most")] = None,
    device: Device = "auto",
    precision: Literal["auto", "bf16", "fp32"] = "auto",
    fast: bool = True,
    set_: Annotated[UseAppendAction[tuple[str, ...]], arg(name="set", metavar="SECTION.FIELD=VALUE")] = (),
) -> None:
    """Train a model. SIGTERM and Ctrl-C save first; `viewslots train --run RUN --resume` goes on.

    Args:
        experiment: METHOD/DATA, such as ocloc/clevr-m1, slot-attention/clevr or umbra/clevr-m3; smaller ones are
            METHOD-compact/DATA. `viewslots info` lists all. Short names: clevr-m1..m4, clevr, dsprites, abstract (the
            paper's); compact, umbra, umbra-details, tiny, tiny-clevr. umbra has two stages, umbra-details three: they
            run one after the other.
        run: Folder of the run: settings, figures, pictures, checkpoints, the best model.
        data: A data set made by make-data or import-data, or `live`: fresh scenes at every step, no disk. The model
            follows the size of its pictures, if its method can.
        steps: Length of the run, all stages together; every constant of the schedule is squeezed or stretched with it.
        seed: Decides first weights, order of scenes, choice of views and noise.
        seeds: Several seeds with commas between them, all at once, into RUN/seed-S.
        resume: Go on with a run from its newest checkpoint; needs no other option but --run.
        init: A run or a shipped model (umbra, umbra-quick, ...) whose weights to start from, in place of all earlier
            stages. umbra from a trained umbra is fine-tuned: a short run at a low rate.
        batch: Scenes in a batch, of all processes together.
        learning_rate: Largest learning rate.
        views: Pictures of each scene in a step, after the phase with one.
        slots: How many objects of a scene it can find at most.
        method: Another method that takes the same settings, such as per-view for ocloc.
        validate_every: Steps from one validation to the next.
        checkpoint_every: Steps from one checkpoint to the next, ten minutes at most; the last three are kept.
        device: Where to train; auto takes a GPU if there is one.
        precision: auto is bf16 on a GPU and fp32 on a CPU.
        fast: Use the fast twins of the networks; the result is the same up to rounding.
        set_: Any constant that `viewslots info EXPERIMENT` shows under model, schedule or optimisation, such as
            schedule.temperature_start=2; may be given several times. Constants of the model count for earlier stages
            too where their experiments have the same value, others for the last stage alone;
            first.schedule.temperature_start=2 is for the stage before it, first.first. for the one before that.
    """
    given = {
        "preset": experiment,
        "data": data,
        "steps": steps,
        "seed": seed,
        "init": str(Path(init).resolve()) if init is not None and Path(init).is_dir() else init,
        "batch": batch,
        "learning_rate": learning_rate,
        "views": views,
        "slots": slots,
        "method": method,
        "validate_every": validate_every,
        "checkpoint_every": checkpoint_every,
        "precision": None if precision == "auto" else precision,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if seeds is None:
        train_one(run, changed_arguments(given, set_, run if resume else None), device, fast, resume)
    else:
        train_many(run, given, device, fast, resume, seeds, set_)


def changed_arguments(given: dict[str, Any], changes: tuple[str, ...], begun: Path | None) -> dict[str, Any]:
    """With the values of --set, whose names are those of the preset, or of that of the run that goes on."""
    from viewslots.experiments import experiment, stages
    from viewslots.training.run import read_run_config
    from viewslots.training.settings import parse_changes, with_changes

    if not changes or ("preset" not in given and begun is None):  # the latter is refused where runs are opened
        return given
    preset = given["preset"] if begun is None or "preset" in given else read_run_config(begun)["preset"]
    chosen, *earlier = map(experiment, reversed(stages(preset)))
    return with_changes(given, parse_changes(changes, chosen, *earlier))


def train_one(run: Path, given: dict[str, Any], device: str, fast: bool, resume: bool) -> None:
    from viewslots.ranks import local_device, was_restarted
    from viewslots.training.distributed import joined_ranks
    from viewslots.training.processes import Interrupted
    from viewslots.training.run import PICTURES

    where = local_device(pick_device(device))
    resume = resume or (was_restarted() and (run / CONFIG).exists())
    speaks = False
    try:
        with joined_ranks(where) as ranks:
            speaks = ranks.first
            outcome = run_training(run, given, where, fast, resume, ranks)
        if speaks:
            print_json(asdict(outcome))
            picture = outcome.run / PICTURES / f"step-{outcome.step:08d}.png"
            if picture.exists():
                say(f"Open {picture} to see what it makes of scenes it was not trained on.")
    except Interrupted as stop:
        if speaks:
            say(f"viewslots: {stop}, all saved; go on with: viewslots train --run {run} --resume")
        raise SystemExit(128 + stop.number) from None


def run_training(
    run: Path, given: dict[str, Any], device: "torch.device", fast: bool, resume: bool, ranks: "Ranks"
) -> "Outcome":
    """Rank 0 opens the folders and tells the others what they say; where it cannot, it alone says why."""
    from viewslots.training.settings import RunSettings

    with ExitStack() as stack:
        opened: list[Opened] = []

        def begin() -> str:
            opened.extend(open_stages(run, given, device.type, fast, resume, ranks, stack))
            return json.dumps([stage.settings.to_json() for stage in opened])

        stages = [RunSettings.from_json(values) for values in json.loads(ranks.told(begin))]
        outcome = None
        for number, settings in enumerate(stages):
            if outcome is not None and opened:
                opened[number].weights = finished_model(outcome.run)
            stage = opened[number] if opened else None
            outcome = run_stage(stage, settings, device, ranks, stages[-1])
        assert outcome is not None
        return outcome


@dataclass
class Opened:
    """A stage that is to run: its folder, what it is to hold, the weights to start from if not those of the seed."""

    folder: "RunFolder"
    settings: "RunSettings"
    weights: "Model | None" = None


def run_stage(
    opened: Opened | None, settings: "RunSettings", device: "torch.device", ranks: "Ranks", last: "RunSettings"
) -> "Outcome":
    """To its end. `opened` on rank 0 alone; `last`: the stage that all lead to."""
    from viewslots.training.log import Console
    from viewslots.training.loop import Outcome, Training, facts_at_end
    from viewslots.training.settings import LIVE
    from viewslots.training.start import assemble

    folder, weights = (None, None) if opened is None else (opened.folder, opened.weights)
    number, count = len(settings.stages), len(last.stages)
    stage = f" of stage {number}" if count > 1 else ""
    if settings.data == LIVE:  # asked before scenes are drawn
        facts = None if folder is None else facts_at_end(folder, settings.steps)
        if ranks.most(facts is not None):
            if folder is None or facts is None:
                return Outcome(Path(), settings.steps, None, None)
            say(finished_already(folder, settings.steps, stage))
            return Outcome(folder.path, settings.steps, facts["best"], facts["last"])
    with Progress("scenes", "rendering", ranks.first and settings.data == LIVE) as progress:
        parts = assemble(settings, device, ranks, weights, progress)
    with Console(settings.steps, parts.model.headline or parts.model.terms, ranks.first, say) as console:
        if count > 1:
            console.stage(number, count, settings.all_steps - settings.steps, last.all_steps)
        training = Training(settings, parts, folder, ranks, console, goes_on=number < count)
        training.resume()
        if folder is not None and training.done == settings.steps and not training.owes_validation:
            console.say(finished_already(folder, settings.steps, stage))
        elif training.done:
            console.say(f"going on from step {training.done:,} of {settings.steps:,}{stage}")
        return training.run()


def finished_already(folder: "RunFolder", steps: int, stage: str) -> str:
    return (
        f"{folder.path} was finished already, at step {steps}{stage}: nothing is left to train. For more steps begin "
        f"a new run: --init {folder.path} starts it from the best model of this one"
    )


def open_stages(
    run: Path, given: dict[str, Any], device: str, fast: bool, resume: bool, ranks: "Ranks", stack: ExitStack
) -> list[Opened]:
    """All stages of a run that are not done yet, in their order; `stack` closes their folders."""
    from viewslots.training.start import FREE

    last = open_run(run, given, device, fast, resume, ranks)
    stack.enter_context(last.folder)
    free = {name: value for name, value in given.items() if name in ("data", *FREE)}
    return with_stages_before(last, free, fast, stack)


def with_stages_before(stage: Opened, free: dict[str, Any], fast: bool, stack: ExitStack) -> list[Opened]:
    """This stage after those before it that are not done yet. Where the one before is done, it starts from that."""
    from viewslots.training.checkpoint import saved_steps
    from viewslots.training.loop import facts_at_end
    from viewslots.training.run import RunFolder
    from viewslots.training.start import resume_run

    settings, place = stage.settings.first, stage.folder.path / FIRST
    if settings is None or saved_steps(stage.folder.checkpoints):
        return [stage]
    if not (place / CONFIG).exists():
        folder = RunFolder.create(place, settings.to_json())
    else:
        folder, settings = resume_run(place, free, fast)
    stack.enter_context(folder)
    if facts_at_end(folder, settings.steps) is not None:
        say(f"stage {len(settings.stages)} is done: going on from its best model, in {place}")
        return [replace(stage, weights=finished_model(place))]
    return [*with_stages_before(Opened(folder, settings), free, fast, stack), stage]


def open_run(run: Path, given: dict[str, Any], device: str, fast: bool, resume: bool, ranks: "Ranks") -> Opened:
    """The folder of the run itself, which is that of its last stage."""
    from viewslots.training.checkpoint import saved_steps
    from viewslots.training.notes import notes
    from viewslots.training.run import RunFolder
    from viewslots.training.start import new_settings, resume_run

    if not resume:
        start = None if "init" not in given else weights_of(given["init"], given.get("preset"))
        known = {} if start is None else {"start": start.model, "init_step": start.step}
        settings = new_settings(given | known, "bf16" if device == "cuda" else "fp32", fast)
        ranks.part(settings.batch)
        weights = first_weights(settings, start)
        folder = RunFolder.create(run, settings.to_json())
        for note in notes(settings, given):
            say(note)
        return Opened(folder, settings, weights)
    folder, settings = resume_run(run, given, fast)
    try:
        begun = settings.init is None or bool(saved_steps(folder.checkpoints))
        start = None if begun else weights_of(str(settings.init), settings.preset)
        if start is not None and settings.init_step not in (None, start.step):
            raise UserError(
                f"{run} was begun with step {settings.init_step} of {settings.init}, which now has step {start.step} "
                "to start from; begin a new run"
            )
        return Opened(folder, settings, first_weights(settings, start))
    except BaseException:
        folder.close()
        raise


@dataclass(frozen=True)
class Start:
    """The model behind --init."""

    model: "Model"
    step: int | None
    origin: str
    """Where it comes from, in words."""


def weights_of(init: str, preset: str | None) -> Start:
    """The step that the experiment asks for where that run has kept it, else its best model."""
    from viewslots.experiments import experiment
    from viewslots.protocol.subject import model_and_step
    from viewslots.training.start import pinned_model

    pinned = None if preset is None else pinned_model(Path(init), experiment(preset).optimisation)
    if pinned is not None:
        return Start(*pinned, f"step {pinned[1]} of {init}, kept for this")
    model, step = model_and_step(init, "best")
    return Start(model, step, f"the best model of {init}" + ("" if step is None else f", step {step}"))


def first_weights(settings: "RunSettings", start: Start | None) -> "Model | None":
    """Those of --init, if they fit; says what is carried over."""
    from viewslots.training.start import begun_anew, require_fit

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
    say(
        f"starting from {start.origin}"
        + (f", which had {', '.join(others)}" if others else "")
        + (f"; all its weights but {', '.join(anew)}, which begins anew" if anew else "")
    )
    return weights


def finished_model(run: Path) -> "Model":
    """What the next stage starts from: the best model; the last one where all steps saw a single view."""
    from viewslots.runs import load_run

    return load_run(run, which="best" if (run / "best.json").is_file() else "last")


def train_many(
    run: Path, given: dict[str, Any], device: str, fast: bool, resume: bool, seeds: str, changes: tuple[str, ...]
) -> None:
    """One process a seed."""
    from viewslots.training.processes import exit_code, parse_seeds, run_seeds, seed_folder

    if "seed" in given:
        raise UserError("--seed and --seeds together: give one of them")
    numbers = parse_seeds(seeds)
    changed_arguments(given, changes, seed_folder(run, numbers[0]) if resume else None)  # refuses what cannot be
    preset = [str(given["preset"])] if "preset" in given else []
    options = {name: value for name, value in given.items() if name != "preset"} | {"device": device}
    common = [text for name, value in options.items() for text in ("--" + name.replace("_", "-"), str(value))]
    common += [text for change in changes for text in ("--set", change)]
    words = {}
    for seed in numbers:
        folder = seed_folder(run, seed)
        again = ["--resume"] if resume and (folder / CONFIG).exists() else []
        flags = again + ([] if fast else ["--no-fast"])
        words[seed] = ["train", *preset, *common, "--seed", str(seed), "--run", str(folder), *flags]
    results = run_seeds(words, say)
    print_json(results.to_json())
    if results.signal:
        say(f"viewslots: all seeds stopped; go on with: viewslots train --run {run} --seeds {seeds} --resume")
    elif results.failed:
        say(f"viewslots: seeds {', '.join(map(str, results.failed))} failed; see their lines above")
    raise SystemExit(exit_code(results))
