"""The page of the demonstration: one file, no scripts, nothing loaded, readable on a telephone, light or dark."""

import html
from collections.abc import Iterator, Sequence
from pathlib import Path

from jaxtyping import Float
from torch import Tensor

from viewslots import __version__
from viewslots.demo.panels import figure_block, film_block, panel_table
from viewslots.demo.scores import MEANINGS, REPEATS
from viewslots.demo.story import Story, number_of
from viewslots.figures.decompositions import (
    Kind,
    background_cell,
    object_cells,
    presences,
    sorted_objects,
    tinted,
)
from viewslots.figures.strips import novel_views
from viewslots.methods.contract import Search
from viewslots.metrics.score import METRICS
from viewslots.protocol.repeats import Values
from viewslots.report.pages import STYLE
from viewslots.report.rows import FLOOR
from viewslots.viewpoints.export import pixels_of
from viewslots.viewpoints.scene import InferredScene

GENERATOR = '<meta name="generator" content="viewslots demo">'
LOOK = """
:root { --panel: clamp(72px, 7.2vw, 92px); }
body { max-width: 76rem; }
p, ul { max-width: 46rem; }
.lead { font-size: 1.1rem; }
img.pixels { display: block; image-rendering: pixelated; outline: 1px solid var(--line); outline-offset: -1px; }
table.panels { font-size: .8rem; }
table.panels th, table.panels td { border: 0; padding: 2px; text-align: center; font-weight: normal;
  color: var(--soft); }
table.panels thead th { vertical-align: bottom; position: static; }
table.panels img { width: var(--panel); height: auto; }
table.panels tbody th { text-align: left; padding-right: .5rem; z-index: 1; min-width: 3.4rem; max-width: 5.5rem; }
table.panels td.absent { background: #d8d8d8 content-box; color: #444; min-width: calc(var(--panel) + 4px); }
figure { margin: 1rem 0; } figcaption { color: var(--soft); font-size: .9rem; max-width: 46rem; margin-top: .3rem; }
video, figure img.film { width: 100%; max-width: 790px; height: auto; display: block; background: #fff; }
figure .sheet { max-width: none; display: block; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; max-width: 46rem; font-size: .9rem; }
dt { font-weight: 600; } dd { margin: 0; color: var(--soft); }
pre { background: var(--band); padding: .7rem; overflow-x: auto; border-radius: 4px; white-space: pre-wrap;
  overflow-wrap: anywhere; }
@media (max-width: 60rem) { .layers::after { content: " The panels scroll sideways."; } }
footer { color: var(--soft); font-size: .85rem; margin-top: 3rem; }
""".strip()


def is_report(text: str) -> bool:
    return GENERATOR in text[:2000]


def report_page(story: Story, sheet: bytes, film: Path, commands: Sequence[tuple[str, str]]) -> str:
    title = f"{number_of(len(story.scenes), 'scene').capitalize()} nobody has seen before"
    parts = [
        introduction(story),
        film_section(story, film),
        *(scene_section(scene, number, story) for number, scene in enumerate(story.scenes, 1)),
        score_section(story),
        truth_section(sheet),
        next_section(commands),
        f"<footer>viewslots {__version__}, scenes of seed {story.seed}. This page needs no network and runs no "
        "scripts.</footer>",
    ]
    head = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n' + GENERATOR + "\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>viewslots demo: {html.escape(title)}</title>\n<style>\n{STYLE}\n{LOOK}\n</style>\n</head>\n"
    )
    return f"{head}<body>\n<h1>{html.escape(title)}</h1>\n" + "\n".join(parts) + "\n</body>\n</html>\n"


def introduction(story: Story) -> str:
    views, facts = len(story.scenes[0].views), story.model
    return (
        f'<p class="lead">The scenes below were drawn at random. Of each, a model saw {views} pictures taken from '
        "viewpoints it was not told, and nothing else. It takes every picture apart into the same objects and a "
        "background, completes what is hidden, and can then look at the scene from elsewhere.</p>\n"
        f"<p>The model is <b>{html.escape(facts.name)}</b>, which comes with the package: small "
        f"({facts.parameters / 1e6:.1f} million parameters; the paper's has 55 million), "
        f"{html.escape(facts.training())}. "
        "It knows scenes of this kind alone and shows them blurred. A shadow lies on the background, but belongs to "
        f"its object and goes where that goes. {html.escape(story.counting())}</p>\n"
        f"<p>{html.escape(how_found(story.scenes[0].reader.search))}</p>"
    )


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


def film_section(story: Story, film: Path) -> str:
    kind = {".mp4": "video/mp4", ".gif": "image/gif"}[film.suffix]
    caption = (
        "The camera passes the viewpoints of the pictures and everything between them, which nobody has seen. "
        "Above: the scenes as the model imagines them. Below: each object in a colour of its own, which it should keep."
    )
    return "<h2>Turning the camera</h2>\n" + film_block(film.read_bytes(), kind, caption)


def scene_section(scene: InferredScene, number: int, story: Story) -> str:
    there, found = story.visible[number - 1], scene.count
    verdict = "as many as there are" if there == found else f"where there are {number_of(there)}"
    text = f"Scene {number}: {number_of(found, 'object')} found, {verdict}"
    seen = layer_table(scene, number, "perceived")
    return (
        f"<h2>{html.escape(text)}</h2>\n"
        '<p class="layers">Layers as the model completes them, hidden parts included; the surest object first. '
        "The background is bare; shadows on it are among what is seen.</p>\n"
        f"{layer_table(scene, number, 'complete')}\n"
        f"<details>\n<summary>What is seen of each layer</summary>\n{seen}\n</details>\n"
        f"{new_views_table(scene, number, story.held_out[number - 1])}"
    )


def layer_table(scene: InferredScene, number: int, kind: Kind) -> str:
    """A row for each view, a column for each layer."""
    assert scene.images is not None
    order = sorted_objects(scene)
    names = ["observation", "rebuilt", "objects", *(f"object {place + 1}" for place in range(len(order))), "background"]
    captions = ["", "", "", *presences(scene)[2:]]
    rows = []
    for index, view in enumerate(scene.render_many(scene.views)):
        cells = [pixels_of(scene.images[index]), pixels_of(view.image), tinted(scene.images[index], view, order)]
        layers = object_cells(scene, view, kind)
        shown = [layer if k in view.shown else None for k, layer in zip(order, layers, strict=True)]
        about = [f"Scene {number}, view {index + 1}: {name}" for name in names]
        rows.append((f"view {index + 1}", list(zip([*cells, *shown, background_cell(view, kind)], about, strict=True))))
    return panel_table([f"{name}|{caption}" for name, caption in zip(names, captions, strict=True)], rows)


def new_views_table(scene: InferredScene, number: int, pictures: Float[Tensor, "V 3 H W"]) -> str:
    truth, seen = novel_views(scene, pictures)
    names = [f"new view {place + 1}" for place in range(len(truth))]
    rows = [
        (
            "held-out picture",
            [(cell, f"Scene {number}, {name}: the picture") for cell, name in zip(truth, names, strict=True)],
        ),
        (
            "by the model",
            [(cell, f"Scene {number}, {name}: the model") for cell, name in zip(seen, names, strict=True)],
        ),
    ]
    return (
        "<p>Pictures that it did not have: of each, only the viewpoint is estimated, and the scene it knows already is "
        f"shown from there.</p>\n{panel_table(names, rows)}"
    )


def score_section(story: Story) -> str:
    rows = [(f"{story.model.name}, these {len(story.scenes)} scenes", story.scores[story.model.name]["paper"])]
    rows.append(("k-means on colours and places, the floor", story.scores[FLOOR]["paper"]))
    if story.model.validated:
        rows.append((f"{story.model.name}, validation scenes after training", story.model.validated))
    pooled = [(name, story.scores[name]["pooled"]) for name in (story.model.name, FLOOR)]
    meanings = "\n".join(f"<dt>{name}</dt><dd>{html.escape(text)}</dd>" for name, text in MEANINGS.items())
    return (
        "<h2>Scores</h2>\n"
        "<p>A handful of scenes tells little: expect these numbers to jump by a tenth or more with other scenes. The "
        f"model's are those of the answers above, those of k-means are means over {REPEATS} answers, by the formulas "
        "of the paper's appendix; 1 is perfect. For numbers that hold, see <code>viewslots evaluate</code>.</p>\n"
        f"{score_table(rows)}\n<dl>\n{meanings}\n</dl>\n"
        "<details>\n<summary>The same, averaged as the published numbers were</summary>\n"
        f"{score_table(pooled)}\n</details>"
    )


def score_table(rows: Sequence[tuple[str, Values]]) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in METRICS)
    body = "\n".join(
        f'<tr><th scope="row">{html.escape(name)}</th>' + "".join(_score_cells(values)) + "</tr>"
        for name, values in rows
    )
    return (
        f'<div class="wide">\n<table class="scores">\n<thead><tr><th scope="col">method</th>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table>\n</div>"
    )


def _score_cells(values: Values) -> Iterator[str]:
    for name in METRICS:
        value = values.get(name)
        yield "<td>N/A</td>" if value is None else f"<td>{value:.3f}</td>"


def truth_section(sheet: bytes) -> str:
    caption = "The whole truth about these scenes, which the renderer knows and the model never sees."
    return f"<h2>The truth</h2>\n{figure_block(sheet, 'Contact sheet of all scenes with their truth', caption)}"


def next_section(commands: Sequence[tuple[str, str]]) -> str:
    lines = "\n".join(f"# {text}\n{command}\n" for command, text in commands)
    return f"<h2>Next</h2>\n<pre>{html.escape(lines.strip())}</pre>"
