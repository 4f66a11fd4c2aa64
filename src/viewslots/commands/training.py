"""train."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, UseAppendAction, arg

from viewslots.errors import UserError
from viewslots.methods.names import METHODS
from viewslots.run_format import CONFIG
from viewslots.terminal import Device, Progress, pick_device, print_json, say

RUNS = Path("runs")
LEARNING = [name for name, method in METHODS.items() if method.learns]


def choice(metavar: str, default: str) -> Any:
    """Help for an option that has no value of its own unless given: a resumed run then keeps what it has."""
    return arg(metavar=metavar, help_behavior_hint=f"(default: {default})")


def train(
    experiment: Annotated[Positional[str | None], choice("EXPERIMENT", "that of the run, with --resume")] = None,
    /,
    *,
    run: Annotated[Path | None, choice("DIR", "runs/EXPERIMENT")] = None,
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
    """Train a model. SIGTERM, Ctrl-C and a closed terminal save first; `viewslots train --run RUN --resume` goes on.

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
        resume: Go on with a run from its newest checkpoint; needs no other option but its experiment or --run.
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
    if run is None:
        if experiment is None:
            raise UserError("name an EXPERIMENT to train, or with --resume the run that goes on: --run DIR")
        run = RUNS / experiment.replace("/", "-")
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
    from viewslots.training.stages import Call, train_stages

    where = local_device(pick_device(device))
    resume = resume or (was_restarted() and (run / CONFIG).exists())
    speaks = False
    try:
        with joined_ranks(where) as ranks:
            speaks = ranks.first
            call = Call(run, given, where, fast, resume, say, partial(Progress, "scenes", "rendering"))
            outcome = train_stages(call, ranks)
        if speaks:
            print_json(asdict(outcome))
            picture = outcome.run / PICTURES / f"step-{outcome.step:08d}.png"
            if picture.exists():
                say(f"Open {picture} to see what it makes of scenes it was not trained on.")
    except Interrupted as stop:
        if speaks:
            say(f"viewslots: {stop}, all saved; go on with: viewslots train --run {run} --resume")
        raise SystemExit(128 + stop.number) from None


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
