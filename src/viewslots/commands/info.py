"""info."""

from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from viewslots.terminal import print_json


def info(
    experiment: Positional[
        Annotated[str | None, arg(metavar="EXPERIMENT|MODEL", help_behavior_hint="(default: all)")]
    ] = None,
    /,
) -> None:
    """Describe an experiment or a trained model: parameters by network, sizes, schedule. Without one, list all.

    Args:
        experiment: METHOD/DATA, such as ocloc/clevr-m1, or a short name; or a run folder, a saved model or a shipped
            one, such as umbra-quick. Where a shipped model has the name of an experiment, both are described.
    """
    from viewslots.experiments import describe, known_experiment, overview
    from viewslots.runs import shipped_models

    shipped = shipped_models()
    if experiment is None:
        print_json({"shipped_models": {name: shipped_in_words(name) for name in shipped}} | overview())
        return
    known = known_experiment(experiment) is not None
    if not known and (experiment in shipped or Path(experiment).is_dir()):
        print_json(model_facts(experiment))
    elif experiment in shipped:
        both = {"two_things": f"an experiment, and below it as shipped_model the trained model {experiment}"}
        print_json(both | describe(experiment) | {"shipped_model": model_facts(experiment)})
    else:
        print_json(describe(experiment))


def model_facts(source: str) -> dict[str, Any]:
    """What a trained model is, and what its training is on record with."""
    from viewslots.protocol.subject import find_subject
    from viewslots.run_record import best_or_last
    from viewslots.runs import find_run

    model, about = find_subject(source, best_or_last(Path(source)), "cpu")
    return {
        "model": source,
        "folder": str(find_run(source)),
        "method": about["method"],
        "experiment": about["preset"],
        "parameters": model.parameter_counts(),  # type: ignore[attr-defined]
        "image_size": about["image_size"],
        "slots": about["trained_slots"],
        "training": about["training"],
        "config": model.config.to_json(),  # type: ignore[attr-defined]
    }


def shipped_in_words(name: str) -> str:
    """One line from what lies beside the weights."""
    from viewslots.experiments import full_name
    from viewslots.run_record import scored_step, taken_before
    from viewslots.runs import find_run, run_preset

    config, step = run_preset(name), scored_step(name, "best")
    before = taken_before(config, find_run(name))["init_steps"]
    after = f" after {before:,} of earlier stages" if before else ""
    return f"{config['method']}, trained as {full_name(config['preset'])}, {step:,} steps{after}"
