"""The figure set: all pictures of what one method makes of some scenes, in a folder."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from viewslots.figures.comparison import comparison_figure, layers_figure
from viewslots.figures.decompositions import answer_figure, decomposition_figure
from viewslots.figures.plots import read_rows, save_figure, score_table, training_curves
from viewslots.figures.strips import axes_figure, interpolation_figure, novel_views_figure, sampling_figure
from viewslots.figures.video import save_video, turning_frames
from viewslots.files import require_regular
from viewslots.run_format import METRICS_FILE
from viewslots.types import Decomposition, OnProgress, SceneTruth
from viewslots.viewpoints.scene import InferredScene

Part = tuple[str, Callable[[Path], list[Path]]]
"""A name, and what saves it under a path without ending."""


def scene_parts(
    scenes: Sequence[InferredScene],
    held_out: Sequence[Float[Tensor, "V 3 H W"] | None],
    seed: int,
    frames: int,
    note: str,
) -> Iterator[Part]:
    """What can be shown of scenes: no viewpoints if their model knows none; a camera turns only where there are two at
    least. `held_out`: further pictures of each scene, if it has some. `note` says how the answers were found."""
    yield "decomposition-perceived", lambda stem: decomposition_figure(scenes, "perceived", note).save(stem)
    yield "decomposition-complete", lambda stem: decomposition_figure(scenes, "complete", note).save(stem)
    if scenes[0].reader.single:
        return
    yield "viewpoints-sampled", lambda stem: sampling_figure(scenes, seed, note=note).save(stem)
    if sum(len(scene.views) for scene in scenes) > 1:
        yield "viewpoints-axes", lambda stem: axes_figure(scenes, note=note).save(stem)
    if min(len(scene.views) for scene in scenes) > 1:
        yield "viewpoints-interpolated", lambda stem: interpolation_figure(scenes, note=note).save(stem)
        yield "camera-path", lambda stem: save_video(turning_frames(scenes, frames), stem)
    if any(pictures is not None for pictures in held_out):
        yield "viewpoints-estimated", lambda stem: novel_views_figure(scenes, held_out, note).save(stem)


def answer_parts(
    images: Sequence[Float[Tensor, "M 3 H W"]], answers: Sequence[Decomposition], note: str
) -> Iterator[Part]:
    """What can be shown of a method whose scenes cannot be seen from elsewhere."""
    yield "decomposition-perceived", lambda stem: answer_figure(images, answers, note).save(stem)


def comparison_parts(
    images: Sequence[Float[Tensor, "M 3 H W"]],
    truths: Sequence[SceneTruth],
    answers: Mapping[str, Sequence[Decomposition]],
) -> Iterator[Part]:
    """Several methods on the same scenes."""
    yield "comparison", lambda stem: comparison_figure(images, truths, answers).save(stem)
    yield "comparison-layers", lambda stem: layers_figure(images, truths, answers).save(stem)


def curve_parts(run: Path) -> Iterator[Part]:
    """Of a run folder that has begun to train."""
    file = run / METRICS_FILE
    if file.is_file() and (rows := read_rows(file)):
        title = f"Training of {run.resolve().name}"
        yield "training", lambda stem: save_figure(training_curves(rows, title), stem)


def table_parts(results: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[Part]:
    """Both conventions, a figure each."""
    if results:
        published = "Scores, averaged as the published numbers were"
        yield "scores-pooled", lambda stem: save_figure(score_table(results, "pooled", published), stem)
        formulas = "Scores by the appendix's formulas"
        yield "scores-paper", lambda stem: save_figure(score_table(results, "paper", formulas), stem)


def save_parts(
    parts: Sequence[Part], out: Path, progress: OnProgress = lambda done, total: None
) -> dict[str, list[str]]:
    """Every part under its name in `out`; answers the files by name."""
    saved = {}
    for done, (name, save) in enumerate(parts, 1):
        for path in out.glob(f"{name}.*"):
            require_regular(path)
        saved[name] = [str(path) for path in save(out / name)]
        progress(done, len(parts))
    return saved
