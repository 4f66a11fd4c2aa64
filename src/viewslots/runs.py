"""From what a user names to a model: a run folder, a folder written by save_pretrained, or a shipped model."""

import re
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from viewslots.errors import UserError, did_you_mean
from viewslots.files import read_json, shown
from viewslots.methods.contract import Method, TrainableMethod
from viewslots.methods.pretrained import WEIGHTS_FILE
from viewslots.methods.registry import load_model
from viewslots.run_format import CONFIG, FIRST, ORIGIN, is_run, pointed, pointer

Model = TrainableMethod[Any]
Which = Literal["best", "last"]
HUB = "hf:"
"""Before OWNER/NAME of the Hugging Face Hub; nothing else goes to the network."""


def load_run(source: str | Path, *, which: Which = "best") -> Model:
    """The model, on the CPU, in evaluation mode. `which` chooses between the models of a run folder."""
    if isinstance(source, str) and source.startswith(HUB):
        return _from_hub(source)
    folder = find_run(source)
    return _kept_model(folder, which) if is_run(folder) else load_model(folder)


def run_preset(source: str | Path) -> dict[str, Any]:
    """What the training was asked for: config of the run folder, or of the run that a saved model says it comes from.

    Empty where nothing tells.
    """
    if isinstance(source, str) and source.startswith(HUB):
        return {}
    folder = find_run(source)
    file = folder / (CONFIG if is_run(folder) else ORIGIN)
    config = read_json(file).get("config") if file.is_file() else {}
    if not isinstance(config, dict):
        raise UserError(f"{file}: damaged ('config' is {shown(config)})")
    return config


def knows_one_view(method: Method, source: str | Path) -> bool:
    """Whether several pictures are not views of one scene to a model: it relates views to each other, and was trained
    on single pictures. False where nothing tells, and of methods that treat every view alone."""
    return method.has_viewpoints and run_preset(source).get("views") == 1


def shipped_models() -> list[str]:
    """Names of the models that come with the package."""
    folder = shipped_folder()
    if not folder.is_dir():
        return []
    return sorted(entry.name for entry in folder.iterdir() if (entry / WEIGHTS_FILE).is_file())


def find_run(source: str | Path) -> Path:
    """The folder behind a path or a name; a folder here goes before a shipped model of that name."""
    folder = Path(source)
    if folder.is_dir():
        if (folder / CONFIG).is_file():
            return folder
        raise UserError(f"{folder}: neither a run folder nor a saved model (it has no {CONFIG})")
    if str(source) in shipped_models():
        return shipped_folder() / str(source)
    known = ", ".join(shipped_models()) or "none"
    raise UserError(
        f"{source}: no such folder, and no shipped model; {did_you_mean(str(source), shipped_models())}shipped are "
        f"{known}; models of the Hub are {HUB}OWNER/NAME"
    )


def shipped_folder() -> Path:
    """By its place in the package: a folder of the same name here must not take its place."""
    return Path(str(files("viewslots"))) / "shipped"


def _from_hub(source: str) -> Model:
    name = source.removeprefix(HUB)
    if Path(name).is_dir():
        raise UserError(f"{source}: {name} is a folder here as well; give ./{name} for that, or go to another folder")
    return load_model(name)


def _kept_model(run: Path, which: Which) -> Model:
    """Training may replace the model while we read: then the pointer has moved, and we follow it."""
    name = _pointed(run, which)
    while True:
        try:
            return load_model(run / name)
        except (UserError, OSError):
            if (moved := _pointed(run, which)) == name:
                raise
            name = moved


def _stages(run: Path, config: dict[str, Any]) -> list[Path]:
    """Folders of all stages of a training, in their order."""
    before = config.get(FIRST)
    return [*(_stages(run / FIRST, before) if isinstance(before, dict) else ()), run]


def _pointed(run: Path, which: Which) -> str:
    if not pointer(run, which).is_file():
        stages = _stages(run, run_preset(run))
        begun = [place for place in stages if any(place.glob("checkpoints/step-*.json"))] or stages[:1]
        if (place := begun[-1]) != run:
            raise UserError(
                f"{run}: no {which} model yet (it is, or was stopped, in stage {stages.index(place) + 1} of "
                f"{len(stages)}); go on with `viewslots train --run {run} --resume`, or look at that stage in {place}"
            )
        if which == "last":
            raise UserError(
                f"{run}: no last model yet (nothing was saved so far); train on, with --resume if it was stopped"
            )
        raise UserError(
            f"{run}: no best model yet (none counts before a validation after the single-view phase); train on, with "
            "--resume if it was stopped, or take the newest by --which last"
        )
    name, _ = pointed(run, which)
    if name is None or not re.fullmatch(rf"{which}-[\w-]+", name) or not (run / name).is_dir():
        raise UserError(
            f"{pointer(run, which)}: names {shown(name)}, which is no folder of this run; it was moved or removed"
        )
    return name
