"""Tables of the paper as values. A row more is a name more; a table more is an entry in TABLES.

Light, so that the command line can list them at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SINGLE_VIEW = ("dsprites", "abstract", "clevr")


@dataclass(frozen=True)
class Score:
    """One number of a row: how its model is asked on the test scenes."""

    split: str
    views: int
    """M, from which the scene is inferred."""
    new_views: int = 0
    """Pictures of which only the viewpoints are inferred; 0: scene decomposition."""

    @property
    def name(self) -> str:
        return f"{self.split}-m{self.views}" + (f"-new{self.new_views}" if self.new_views else "")


@dataclass(frozen=True)
class Short:
    """A recipe of ours for a much shorter training than the published one."""

    steps: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Values of `train --set` by name, such as optimisation.batch_size. What counts steps is not squeezed."""


SHORT: dict[str, Short] = {
    "slot-attention/dsprites": Short(
        48_000,
        {
            "optimisation.batch_size": 32,
            "optimisation.learning_rate": 6e-4,
            "optimisation.warmup_steps": 2_000,
            "optimisation.decay_steps": 16_000,
        },
    ),
    "gmioo/dsprites": Short(14_000, {"optimisation.learning_rate": 4e-4}),
    "space/dsprites": Short(
        14_000,
        {
            "optimisation.batch_size": 16,
            "optimisation.learning_rate": 1e-4,
            "optimisation.warmup_steps": 500,
        },
    ),
    "ocloc/dsprites": Short(
        36_000,
        {
            "optimisation.batch_size": 32,
            "model.start.log_sigma": -3.0,
            "model.start.shape_logit": -2.0,
            "model.start.selection_gain": 30.0,
        },
    ),
    "ocloc-compact/dsprites": Short(30_000, {"optimisation.batch_size": 32}),
    "umbra/dsprites": Short(10_000, {"optimisation.batch_size": 32}),
}
"""By experiment; first stages are experiments too. Measured in docs/results/single-view."""


@dataclass(frozen=True)
class Table:
    """Rows, and what is measured of each."""

    about: str
    rows: tuple[str, ...]
    """Experiments METHOD/DATA. Of a method that learns nothing too: kmeans/clevr. A first stage (`pretrained_preset`
    of the experiment) is trained without being named."""
    scores: tuple[Score, ...]
    figure_scenes: int = 8
    """Scenes in the figure that compares the rows of a data set; 0: no figures."""
    figure_views: int = 1
    short: Mapping[str, Short] = field(default_factory=lambda: SHORT)
    """Recipes of `--short` by experiment."""


TABLES = {
    "table2": Table(
        "single view: Table 2 of the paper (test1) and its table in the supplement (test2)",
        tuple(
            f"{method}/{data}"
            for data in SINGLE_VIEW
            for method in ("slot-attention", "gmioo", "space", "ocloc", "umbra", "kmeans")
        ),
        (Score("test1", views=1), Score("test2", views=1)),
    ),
}
