"""info."""

from typing import Annotated

from tyro.conf import Positional, arg

from viewslots.terminal import print_json


def info(
    experiment: Positional[
        Annotated[str | None, arg(metavar="EXPERIMENT", help_behavior_hint="(default: all)")]
    ] = None,
    /,
) -> None:
    """Describe an experiment: parameters by network, sizes, schedule. Without one, list all.

    Args:
        experiment: METHOD/DATA, such as ocloc/clevr-m1, or a short name.
    """
    from viewslots.experiments import describe, overview

    print_json(overview() if experiment is None else describe(experiment))
