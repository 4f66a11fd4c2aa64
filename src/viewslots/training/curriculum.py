"""The second stage of a curriculum starts where the first one was at a given step."""

from pathlib import Path

from viewslots.methods.ocloc.model import Ocloc
from viewslots.training.checkpoint import Damaged, load_step
from viewslots.training.run import CHECKPOINTS, read_run_config
from viewslots.training.settings import METHODS, RunSettings


def pinned_model(run: Path, wanted_by: RunSettings) -> tuple[Ocloc, int] | None:
    """The model that a run has kept for presets that start from it, and its step; None where it has none."""
    if not (run / CHECKPOINTS).is_dir():
        return None
    settings = RunSettings.from_json(read_run_config(run))
    if settings.preset != wanted_by.optimisation.pretrained_preset:
        return None
    for step in settings.pinned:
        try:
            state = load_step(run / CHECKPOINTS, step)
        except Damaged:
            continue
        model = METHODS[settings.method](settings.model)
        tensors = {name: value for name, value in state.tensors.items() if name.startswith("model.")}
        model.load_state_dict({name.removeprefix("model."): value for name, value in tensors.items()})
        return model, step
    return None
