"""Tables of the paper, and that of umbra, as values. A row more is a name more; a table more is an entry in TABLES.

Light, so that the command line can list them at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

SINGLE_VIEW = ("dsprites", "abstract", "clevr")
MULTI_VIEW = ("clevr-m1", "clevr-m2", "clevr-m3", "clevr-m4")


@dataclass(frozen=True)
class Score:
    """One number of a row: how its model is asked on the test scenes."""

    split: str
    views: int
    """M, from which the scene is inferred."""
    new_views: int = 0
    """Pictures of which only the viewpoints are inferred; 0: scene decomposition."""
    answers: int = 5
    """Of each scene; the paper takes five."""
    plain: bool = False
    """Whether a method that searches by default answers as in its paper all the same."""

    @property
    def name(self) -> str:
        new, plain = f"-new{self.new_views}" if self.new_views else "", "-plain" if self.plain else ""
        return f"{self.split}-m{self.views}{new}{plain}"


@dataclass(frozen=True)
class Short:
    """A recipe of ours for a much shorter training than the published one."""

    steps: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Values of `train --set` by name, such as optimisation.batch_size, for a run of these `steps`."""


def gmioo(steps: int, learning_rate: float, more: Mapping[str, Any] = MappingProxyType({})) -> Short:
    """The rate falls along the whole run."""
    rate = {"optimisation.learning_rate": learning_rate, "optimisation.decay_factor": 0.15}
    return Short(steps, {**rate, "optimisation.decay_steps": steps, **more})


def space(steps: int, batch_size: int = 32) -> Short:
    """Its boundary loss lasts as long as the run: once it ends, SPACE breaks objects into pieces."""
    rate = {"optimisation.learning_rate": 1e-4, "optimisation.warmup_steps": 500}
    return Short(steps, {"optimisation.batch_size": batch_size, **rate, "schedule.boundary_steps": steps})


OCLOC_START = {"model.start.log_sigma": -3.0, "model.start.shape_logit": -2.0, "model.start.selection_gain": 30.0}
"""As the first stage of umbra starts."""

SHORT: dict[str, Short] = {
    "slot-attention/dsprites": Short(
        36_000,
        {"optimisation.batch_size": 32, "optimisation.warmup_steps": 2_000, "optimisation.decay_steps": 18_000},
    ),
    "gmioo/dsprites": gmioo(13_000, 5e-4),
    "space/dsprites": space(24_000),
    "ocloc/dsprites": Short(36_000, {"optimisation.batch_size": 32, **OCLOC_START}),
    "umbra/dsprites": Short(40_000, {"optimisation.batch_size": 32}),
    "umbra-glimpses/dsprites": Short(5_000, {"optimisation.batch_size": 64}),
    "slot-attention/abstract": Short(
        40_000,
        {"optimisation.batch_size": 32, "optimisation.warmup_steps": 2_000, "optimisation.decay_steps": 20_000},
    ),
    "space/abstract": space(16_000),
    "gmioo/abstract": gmioo(9_000, 4e-4, {"schedule.guide_steps": 4_500}),
    "ocloc/abstract": Short(24_000, {"optimisation.batch_size": 32, **OCLOC_START}),
    "umbra/abstract": Short(23_000, {"optimisation.batch_size": 32}),
    "umbra-glimpses/abstract": Short(4_000, {"optimisation.batch_size": 32}),
    "slot-attention/clevr": Short(
        20_000,
        {"optimisation.batch_size": 32, "optimisation.warmup_steps": 2_000, "optimisation.decay_steps": 10_000},
    ),
    "gmioo/clevr": gmioo(8_000, 4e-4, {"schedule.guide_steps": 4_000, "optimisation.batch_size": 32}),
    "space/clevr": space(16_000, batch_size=16),
    "ocloc/clevr": Short(14_000, {"optimisation.batch_size": 32, **OCLOC_START}),
    "umbra/clevr": Short(25_000, {"optimisation.batch_size": 32}),
    "umbra-glimpses/clevr": Short(3_500, {"optimisation.batch_size": 32}),
}
"""By experiment; steps of both stages, where there are two. docs/results/single-view says what they gave, and how the
runs there differed."""


@dataclass(frozen=True)
class Table:
    """Rows, and what is measured of each."""

    about: str
    rows: tuple[str, ...]
    """Experiments METHOD/DATA. Of a method that learns nothing too: kmeans/clevr. A run that a row starts from
    (`pretrained_preset` of the experiment) is trained without being named."""
    scores: tuple[Score, ...]
    figure_scenes: int = 8
    """Scenes in the figure that compares the rows of a data set; 0: no figures."""
    figure_views: int = 1
    own_figures: bool = False
    """Whether each row of a method with viewpoints has its own figures too: layers, and the scene from elsewhere."""
    short: Mapping[str, Short] = field(default_factory=lambda: SHORT)
    """Recipes of `--short` by experiment."""
    large_scenes: int = 0
    """Scenes of the further splits test1-large and test2-large."""
    elsewhere: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Data sets on which rows of another one are scored, by the name of that one."""

    def scored_on(self, data: str) -> tuple[str, ...]:
        return self.elsewhere.get(data, (data,))


SINGLE_VIEW_ROWS = tuple(
    f"{method}/{data}"
    for data in SINGLE_VIEW
    for method in ("slot-attention", "gmioo", "space", "ocloc", "umbra", "umbra-glimpses", "kmeans")
)
MULTI_VIEW_ROWS = tuple(
    f"{method}/{data}" for data in MULTI_VIEW for method in ("mulmon", "per-view", "ocloc", "umbra-details", "kmeans")
)
MIXED = "clevr-mixed"
"""Scenes of all four sets of several views."""
NEW_VIEWS = 4
"""Of which viewpoints are estimated, in the supplement."""

TABLES = {
    "table1": Table("several views: Table 1 of the paper", MULTI_VIEW_ROWS, (Score("test1", views=4),), figure_views=4),
    "table2": Table(
        "single view: Table 2 of the paper (test1) and its table in the supplement (test2)",
        SINGLE_VIEW_ROWS,
        (Score("test1", views=1), Score("test2", views=1)),
    ),
    "supplement": Table(
        "several views: all other tables of the supplement; more objects, 1, 2, 4 and 8 views, estimated viewpoints",
        MULTI_VIEW_ROWS,
        (
            *(Score(split, views) for views in (1, 2, 8) for split in ("test1", "test2")),
            Score("test2", views=4),
            *(Score(split, views, NEW_VIEWS) for views in (1, 2, 4) for split in ("test1", "test2")),
        ),
        figure_scenes=0,
    ),
    "figures": Table(
        "all figures: decompositions, viewpoints, and methods side by side on the same scenes",
        (*MULTI_VIEW_ROWS, *SINGLE_VIEW_ROWS),
        (),
        figure_scenes=8,
        figure_views=4,
        own_figures=True,
    ),
    "umbra": Table(
        "umbra on every data set of several views, and one set of weights for all of them: searched and plain answers",
        tuple(f"umbra-details/{data}" for data in (*MULTI_VIEW, MIXED)),
        (
            Score("test1-large", views=4, answers=1),
            Score("test2-large", views=4, answers=1),
            Score("test1", views=4, plain=True),
            Score("test1", views=4, new_views=NEW_VIEWS, answers=1),
        ),
        figure_views=4,
        own_figures=True,
        large_scenes=1_000,
        elsewhere={MIXED: MULTI_VIEW},
    ),
}
