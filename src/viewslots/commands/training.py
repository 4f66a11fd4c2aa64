"""train."""

import json
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, UseAppendAction, arg

from viewslots.errors import UserError
from viewslots.methods.names import METHODS
from viewslots.terminal import Device, Progress, pick_device, print_json, say

if TYPE_CHECKING:
    import torch

    from viewslots.training.distributed import Ranks
    from viewslots.training.loop import Outcome
    from viewslots.training.run import RunFolder
    from viewslots.training.settings import RunSettings
    from viewslots.training.step import Model


def choice(metavar: str, default: str) -> Any:
    """Help for an option that has no value of its own unless given: a resumed run then keeps what it has."""
    return arg(metavar=metavar, help_behavior_hint=f"(default: {default})")


def train(
    experiment: Annotated[Positional[str | None], choice("EXPERIMENT", "that of the run, with --resume")] = None,
    /,
    *,
    run: Path,
    data: Annotated[str | None, choice("DIR|live", "that of the run, with --resume")] = None,
    steps: Annotated[int | None, choice("N", "as in the paper")] = None,
    seed: Annotated[int | None, choice("S", "0")] = None,
    seeds: Annotated[str | None, choice("S,S,...", "one run")] = None,
    resume: bool = False,
    init: Annotated[str | None, choice("RUN", "random weights")] = None,
    batch: Annotated[int | None, choice("N", "as in the paper")] = None,
    learning_rate: Annotated[float | None, choice("RATE", "as in the paper")] = None,
    views: Annotated[int | None, choice("M", "as in the paper: 4, or 1 for sets of single pictures")] = None,
    slots: Annotated[int | None, choice("K", "as in the experiment")] = None,
    method: Annotated[str | None, choice("{" + ",".join(METHODS) + "}", "that of the experiment")] = None,
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
            paper's); compact, umbra, tiny.
        run: Folder of the run: settings, figures, pictures, checkpoints, the best model.
        data: A data set made by make-data or import-data, or `live`: fresh scenes at every step, no disk. The model
            follows the size of its pictures, if its method can.
        steps: Length of the run; every constant of the schedule is squeezed or stretched with it.
        seed: Decides first weights, order of scenes, choice of views and noise.
        seeds: Several seeds with commas between them, all at once, into RUN/seed-S.
        resume: Go on with a run from its newest checkpoint; needs no other option but --run.
        init: A run whose weights to start from; experiments that are a second stage need one.
        batch: Scenes in a batch, of all processes together.
        learning_rate: Largest learning rate.
        views: Pictures of each scene in a step, after the phase with one.
        slots: How many objects of a scene it can find at most.
        method: Another method that takes the same settings, such as per-view for ocloc.
        validate_every: Steps from one validation to the next.
        checkpoint_every: Steps from one checkpoint to the next; the last three are kept.
        device: Where to train; auto takes a GPU if there is one.
        precision: auto is bf16 on a GPU and fp32 on a CPU.
        fast: Use the fast twins of the networks; the result is the same up to rounding.
        set_: Any constant that `viewslots info EXPERIMENT` shows under model, schedule or optimisation, such as
            schedule.temperature_start=2; may be given several times.
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
    from viewslots.experiments import experiment
    from viewslots.training.run import read_run_config
    from viewslots.training.settings import parse_changes, with_changes

    if not changes or ("preset" not in given and begun is None):  # the latter is refused where runs are opened
        return given
    preset = given["preset"] if begun is None or "preset" in given else read_run_config(begun)["preset"]
    return with_changes(given, parse_changes(changes, experiment(preset)))


def train_one(run: Path, given: dict[str, Any], device: str, fast: bool, resume: bool) -> None:
    from viewslots.training.distributed import joined_ranks, local_device, was_restarted
    from viewslots.training.processes import Interrupted
    from viewslots.training.run import PICTURES

    where = local_device(pick_device(device))
    resume = resume or (was_restarted() and (run / "config.json").exists())
    speaks = False
    try:
        with joined_ranks(where) as ranks:
            speaks = ranks.first
            outcome = run_training(run, given, where, fast, resume, ranks)
        if speaks:
            print_json(asdict(outcome))
            picture = run / PICTURES / f"step-{outcome.step:08d}.png"
            if picture.exists():
                say(f"Open {picture} to see what it makes of scenes it was not trained on.")
    except Interrupted as stop:
        if speaks:
            say(f"viewslots: {stop}, all saved; go on with: viewslots train --run {run} --resume")
        raise SystemExit(128 + stop.number) from None


def run_training(
    run: Path, given: dict[str, Any], device: "torch.device", fast: bool, resume: bool, ranks: "Ranks"
) -> "Outcome":
    """Rank 0 opens the folder and tells the others what it says; where it cannot, it alone says why."""
    from viewslots.training.log import Console
    from viewslots.training.loop import Training
    from viewslots.training.settings import LIVE, RunSettings
    from viewslots.training.start import assemble

    with ExitStack() as stack:
        folder, weights, text = None, None, ""
        try:
            if ranks.first:
                folder, settings, weights = open_run(run, given, device.type, fast, resume, ranks)
                stack.enter_context(folder)
                text = json.dumps(settings.to_json())
        finally:
            text = ranks.tell(text)
        if not text:
            raise SystemExit(1)
        settings = RunSettings.from_json(json.loads(text))
        with Progress("scenes", "rendering", ranks.first and settings.data == LIVE) as progress:
            parts = assemble(settings, device, ranks, weights, progress)
        console = stack.enter_context(
            Console(settings.steps, parts.model.headline or parts.model.terms, ranks.first, say)
        )
        training = Training(settings, parts, folder, ranks, console)
        training.resume()
        return training.run()


def open_run(
    run: Path, given: dict[str, Any], device: str, fast: bool, resume: bool, ranks: "Ranks"
) -> tuple["RunFolder", "RunSettings", "Model | None"]:
    """The folder, what it is to hold, and the weights to start from if not those of the seed."""
    from viewslots.training.checkpoint import saved_steps
    from viewslots.training.notes import notes
    from viewslots.training.run import RunFolder
    from viewslots.training.start import new_settings, resume_run

    if not resume:
        settings = new_settings(given, "bf16" if device == "cuda" else "fp32", fast)
        ranks.part(settings.batch)
        weights = first_weights(settings)
        for note in notes(settings, views_given="views" in given):
            say(note)
        return RunFolder.create(run, settings.to_json()), settings, weights
    folder, settings = resume_run(run, given, fast)
    try:
        return folder, settings, None if saved_steps(folder.checkpoints) else first_weights(settings)
    except BaseException:
        folder.close()
        raise


def first_weights(settings: "RunSettings") -> "Model | None":
    """Of --init: the step that the experiment asks for where that run has kept it, else its best model."""
    from viewslots.runs import load_run
    from viewslots.training.start import pinned_model, require_fit

    if settings.init is None:
        return None
    pinned = pinned_model(Path(settings.init), settings)
    weights = pinned[0] if pinned else load_run(settings.init)
    require_fit(settings, weights)
    origin = f"step {pinned[1]} of {settings.init}, kept for this" if pinned else f"the best model of {settings.init}"
    theirs = vars(weights.config)
    others = [
        name for name, value in vars(settings.model).items() if name != "start" and theirs.get(name, value) != value
    ]
    say(f"starting from {origin}" + (f", which had another {', '.join(others)}" if others else ""))
    return weights


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
        again = ["--resume"] if resume and (folder / "config.json").exists() else []
        flags = again + ([] if fast else ["--no-fast"])
        words[seed] = ["train", *preset, *common, "--seed", str(seed), "--run", str(folder), *flags]
    results = run_seeds(words, say)
    print_json(results.to_json())
    if results.signal:
        say(f"viewslots: all seeds stopped; go on with: viewslots train --run {run} --seeds {seeds} --resume")
    elif results.failed:
        say(f"viewslots: seeds {', '.join(map(str, results.failed))} failed; see their lines above")
    raise SystemExit(exit_code(results))
