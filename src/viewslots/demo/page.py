"""The page of the demonstration: what it tells of, and the values that template.html.j2 shows."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jaxtyping import Float
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup
from torch import Tensor

from viewslots import __version__
from viewslots.figures.decompositions import (
    Kind,
    background_cell,
    object_cells,
    presences,
    sorted_objects,
    tinted,
)
from viewslots.figures.grid import Pixels, data_uri, png_bytes
from viewslots.figures.strips import novel_views
from viewslots.files import read_json
from viewslots.methods.contract import Search
from viewslots.metrics.score import METRICS
from viewslots.protocol.repeats import Values
from viewslots.report.pages import STYLE
from viewslots.run_format import ORIGIN
from viewslots.run_record import taken_before
from viewslots.runs import shipped_folder
from viewslots.viewpoints.export import pixels_of
from viewslots.viewpoints.scene import InferredScene

GENERATOR = '<meta name="generator" content="viewslots demo">'
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
VIDEO_KINDS = {".mp4": "video/mp4", ".gif": "image/gif"}
Scores = dict[str, dict[str, Values]]
"""By method, then by convention."""

MEANINGS = {
    "ARI-A": "are pixels grouped as in truth, background included (shadows count as mistakes)?",
    "AMI-A": "the same, measured by mutual information",
    "ARI-O": "are pixels of objects grouped into the right objects, and the same ones in all views?",
    "AMI-O": "the same, measured by mutual information",
    "IoU": "do complete shapes, hidden parts included, overlap with the true ones?",
    "F1": "the same, as the balance of precision and recall",
    "OCA": "share of scenes whose objects are counted exactly right",
    "OOA": "of two objects that overlap, is the nearer one known?",
}
"""In one line each; 1 is perfect, and chance is near 0 for the first four."""


@dataclass(frozen=True)
class ModelFacts:
    """From the file beside the weights; None or empty where it does not tell."""

    name: str
    parameters: int
    steps: int | None
    seed: int | None
    data: str | None
    views: int | None
    validated: dict[str, float | None]
    """Scores on the validation scenes at the end of training, by the appendix's formulas."""
    first: str | None = None
    """The model whose weights it started from, as METHOD/DATA of a place where that is on record, or a name."""
    first_steps: int | None = None
    """Of all its stages."""

    def training(self) -> str:
        """Half a sentence."""
        if self.steps is None or self.data is None:
            return "how it was trained is not on record"
        earlier = f" for {self.first_steps:,} steps in all" if self.first_steps else ""
        first = f", first as {self.first.partition(' of ')[0]}{earlier}, then" if self.first else ""
        views = f", {self.views} pictures at a time" if self.views else ""
        where = f"on scenes of {self.data}{views} (seed {self.seed})"
        return f"trained without labels{first} for {self.steps:,} steps {where}"


def model_facts(name: str, parameters: int) -> ModelFacts:
    file = shipped_folder() / name / ORIGIN
    origin: dict[str, Any] = read_json(file) if file.is_file() else {}
    config, facts = origin.get("config") or {}, origin.get("facts") or {}
    return ModelFacts(
        name=name,
        parameters=parameters,
        steps=(config.get("schedule") or {}).get("steps"),
        seed=config.get("seed"),
        data=config.get("world"),
        views=config.get("views"),
        validated=facts.get("scores") or {},
        first=config.get("init"),
        first_steps=taken_before(config, file.parent)["init_steps"],
    )


@dataclass(frozen=True)
class Story:
    """The model, the scenes as it sees them, and what is true."""

    model: ModelFacts
    scenes: Sequence[InferredScene]
    held_out: Float[Tensor, "S V 3 H W"]
    visible: Sequence[int]
    """How many objects are to be seen, a scene."""
    scores: Scores
    """The model's, then those of the method beside it."""
    seed: int

    def counting(self) -> str:
        """One sentence on how well the objects were counted here."""
        pairs = [(scene.count, there) for scene, there in zip(self.scenes, self.visible, strict=True)]
        right = sum(found == there for found, there in pairs)
        if right == len(pairs):
            return "Here it counts the objects of every scene right."
        share = f"Here it counts the objects of {number_of(right, 'scene')} of {number_of(len(pairs))} right"
        if all(found >= there for found, there in pairs):
            return f"{share}, and finds too many in the others; look for copies of one object among the layers."
        return f"{share}."


def number_of(count: int, noun: str = "") -> str:
    """In words, as far as one counts on fingers."""
    number = WORDS[count] if count < len(WORDS) else str(count)
    return f"{number} {noun}{'s' * (count != 1)}" if noun else number


@dataclass(frozen=True)
class PanelTable:
    """Rows of pictures."""

    columns: list[tuple[str, str]]
    """Names, and captions below them."""
    rows: list[tuple[str, list[tuple[Pixels | None, str]]]]
    """A name, then pictures with what they show; None for a slot that is not used."""


@dataclass(frozen=True)
class ScenePanels:
    """What the page shows of one scene."""

    verdict: str
    complete: PanelTable
    perceived: PanelTable
    new_views: PanelTable


@dataclass(frozen=True)
class Clip:
    """A video, or an animated picture."""

    content: bytes
    kind: str


def is_report(text: str) -> bool:
    return GENERATOR in text[:2000]


def report_page(story: Story, sheet: bytes, video: Path, commands: Sequence[tuple[str, str]], repeats: int) -> str:
    """`repeats`: answers of the method that the model is compared with."""
    (name, ours), (other, theirs) = story.scores.items()
    paper = [
        (f"{name}, these {len(story.scenes)} scenes", ours["paper"]),
        ("k-means on colours and places, the floor", theirs["paper"]),
    ]
    if story.model.validated:
        paper.append((f"{name}, validation scenes after training", story.model.validated))
    return template().render(
        title=f"{number_of(len(story.scenes), 'scene').capitalize()} nobody has seen before",
        story=story,
        how_found=how_found(story.scenes[0].reader.search),
        clip=Clip(video.read_bytes(), VIDEO_KINDS[video.suffix]),
        scenes=[scene_panels(scene, number, story) for number, scene in enumerate(story.scenes, 1)],
        metrics=METRICS,
        meanings=MEANINGS,
        repeats=repeats,
        paper_scores=paper,
        pooled_scores=[(name, ours["pooled"]), (other, theirs["pooled"])],
        sheet=sheet,
        commands=commands,
        version=__version__,
    )


@cache
def template() -> Template:
    """All text is escaped."""
    environment = Environment(
        loader=PackageLoader("viewslots", "demo"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"png": png_bytes, "data_uri": data_uri}
    environment.globals |= {"generator": Markup(GENERATOR), "style": Markup(STYLE)}
    return environment.get_template("template.html.j2")


def how_found(search: Search | None) -> str:
    """How answers are found."""
    if search is None:
        return "Each answer is one pass of the inference, from a random start."
    looks = f", then {number_of(search.looks, 'more look')} at what no object explains yet" if search.looks else ""
    steps = f", and small corrections ({search.refinement} gradient steps a time)" if search.refinement else ""
    return (
        f"Where it starts to look is random. Of {number_of(search.starts, 'start')}, the one that describes the "
        f"pictures most shortly goes on{looks}{steps}. Objects that explain too little are left out. None of this "
        "needs the truth."
    )


def scene_panels(scene: InferredScene, number: int, story: Story) -> ScenePanels:
    there, found = story.visible[number - 1], scene.count
    verdict = "as many as there are" if there == found else f"where there are {number_of(there)}"
    return ScenePanels(
        f"{number_of(found, 'object')} found, {verdict}",
        layer_table(scene, number, "complete"),
        layer_table(scene, number, "perceived"),
        new_views_table(scene, number, story.held_out[number - 1]),
    )


def layer_table(scene: InferredScene, number: int, kind: Kind) -> PanelTable:
    """A row for each view, a column for each layer."""
    assert scene.images is not None
    order = sorted_objects(scene)
    names = ["observation", "rebuilt", "objects", *(f"object {place + 1}" for place in range(len(order))), "background"]
    rows = []
    for index, view in enumerate(scene.render_many(scene.views)):
        cells = [pixels_of(scene.images[index]), pixels_of(view.image), tinted(scene.images[index], view, order)]
        layers = object_cells(scene, view, kind)
        shown = [layer if k in view.shown else None for k, layer in zip(order, layers, strict=True)]
        about = [f"Scene {number}, view {index + 1}: {name}" for name in names]
        rows.append((f"view {index + 1}", list(zip([*cells, *shown, background_cell(view, kind)], about, strict=True))))
    return PanelTable(list(zip(names, ["", *presences(scene)], strict=True)), rows)


def new_views_table(scene: InferredScene, number: int, pictures: Float[Tensor, "V 3 H W"]) -> PanelTable:
    truth, seen = novel_views(scene, pictures)
    names = [f"new view {place + 1}" for place in range(len(truth))]

    def row(cells: Sequence[Pixels], what: str) -> list[tuple[Pixels | None, str]]:
        return [(cell, f"Scene {number}, {name}: {what}") for cell, name in zip(cells, names, strict=True)]

    rows = [("held-out picture", row(truth, "the picture")), ("by the model", row(seen, "the model"))]
    return PanelTable([(name, "") for name in names], rows)
