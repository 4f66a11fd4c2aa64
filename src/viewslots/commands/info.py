"""info."""

from typing import Annotated

from tyro.conf import Positional, arg

from viewslots.terminal import print_json


def info(experiment: Positional[Annotated[str, arg(metavar="EXPERIMENT")]], /) -> None:
    """Describe an experiment: parameters by network, sizes, schedule.

    Args:
        experiment: METHOD/DATA, such as ocloc/clevr-m1, or a short name; see `viewslots train --help`.
    """
    from viewslots.experiments import describe

    print_json(describe(experiment))
