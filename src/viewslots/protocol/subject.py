"""Who is evaluated, in how many slots, by which search: from what a user names to a method."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from viewslots.data.format import DatasetPlan
from viewslots.errors import UserError
from viewslots.experiments import known_experiment, slots_for
from viewslots.methods.contract import Method, Search, changed_search
from viewslots.methods.registry import untrained_method
from viewslots.run_record import model_and_step, training_facts
from viewslots.runs import Which, run_preset


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


def default_slots(about: Mapping[str, Any], data: DatasetPlan, split: str, others: int | None = None) -> int:
    """As trained; on test2 as the paper tests with more objects, if that is more.

    What learns nothing, and on test2 a model of no known experiment, takes the data set's numbers: the paper's for its
    data sets, else as many as `others` beside it have, else as there are objects in a scene of the split at most.
    """
    trained = known_experiment(about["preset"])
    if not split.startswith("test2") and "trained_slots" in about:
        return int(about["trained_slots"])
    if trained is not None and split.startswith("test2"):
        return max(trained.test_slots, int(about.get("trained_slots") or 0))
    slots = slots_for(data.preset, split) or others or data.splits[split].slots
    if not slots:
        known = data.preset or "this data set"
        raise UserError(f"--slots: say how many objects may be found in {known}; nothing tells")
    return slots


def search_asked_for(default: Search | None, **asked: int | None) -> Search | None:
    """The method's own search with what the user of a command changes in it."""
    if asked.get("starts") == 0 and any(value is not None for name, value in asked.items() if name != "starts"):
        raise UserError(
            "--starts 0 is the plain answer, without a search: leave out --looks, --refine and --spare, or search from "
            "--starts 1 or more"
        )
    try:
        return changed_search(default, **asked)
    except UserError as error:
        raise UserError(f"--starts, --looks, --refine or --spare: {error}") from None
