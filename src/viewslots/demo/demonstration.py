"""The demonstration: new scenes, the shipped model, what it makes of them, scores, a video, one page to look at."""

import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from viewslots.data.dataset import SceneDataset
from viewslots.data.generate import DatasetRecipe, make_dataset
from viewslots.data.presets import data_preset
from viewslots.data.store import Store
from viewslots.data.views import FirstViews, LastViews
from viewslots.demo.page import Scores, Story, is_report, model_facts, report_page
from viewslots.errors import UserError
from viewslots.figures.decompositions import decomposition_figure
from viewslots.figures.sheets import contact_sheet
from viewslots.figures.video import Frames, save_gif, save_mp4, turning_frames
from viewslots.files import make_folder, plain_errors, replacing, require_folder, write_json
from viewslots.methods.contract import Method
from viewslots.methods.registry import method_class
from viewslots.metrics.score import score_scenes
from viewslots.protocol.evaluate import evaluate
from viewslots.protocol.plan import Plan
from viewslots.protocol.repeats import Values
from viewslots.pulse import Listener, heard
from viewslots.runs import shipped_folder
from viewslots.types import BACKGROUND, OnProgress, Pictures, concatenated
from viewslots.viewpoints.scene import InferredScene, Reader, load, search_words

MODEL, PRESET, SPLIT = "umbra-quick", "clevr-m1", "test1"
RENDERED, ANSWERED, SCORED, FILMED = 10, 60, 70, 85
"""Percent of the time of a demo that have passed by then."""
SCENES, VIEWS, NEW_VIEWS, FRAMES = 4, 4, 4, 60
REPORT, SHEET, VIDEO, SCORES, LAYERS = "report.html", "truth.png", "video", "scores.json", "decomposition"
BESIDE, REPEATS = "kmeans", 5
"""The method that the model is compared with, and its answers: it costs little."""


@dataclass(frozen=True)
class Demo:
    """Where everything lies."""

    report: Path
    sheet: Path
    video: Path
    data: Path
    scores: Scores
    seed: int

    def to_json(self) -> dict[str, Any]:
        paths = {name: str(getattr(self, name)) for name in ("report", "sheet", "video")}
        return paths | {"scores": self.scores, "data": str(self.data), "seed": self.seed}

    @property
    def next_commands(self) -> list[str]:
        return [command for command, _ in next_commands(self.data)]


def run_demo(
    out: Path, seed: int, *, scenes: int = SCENES, frames: int = FRAMES, progress: OnProgress = lambda done, total: None
) -> Demo:
    """The page and all that is in it, in `out`; a demo that was there before is replaced, its scenes stay."""
    folder = out / f"seed-{seed}"
    with plain_errors("writing", out):
        require_own(out)
        out.mkdir(parents=True, exist_ok=True)
        make_folder(folder)
        store = demo_scenes(folder / "data", seed, scenes, lambda done, _: progress(RENDERED * done // scenes, 100))
        with one_thread():
            return show_scenes(store, out, folder, seed, frames, progress)


@contextmanager
def one_thread() -> Iterator[None]:
    """One scene of a small model is too little work for two threads: beside other programs they wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def show_scenes(store: Store, out: Path, folder: Path, seed: int, frames: int, progress: OnProgress) -> Demo:
    """What the model makes of the scenes, as files."""
    reader = load(shipped_folder() / MODEL)
    seen, held_out = pictures_of(store)
    inferred = decomposed(reader, seen, lambda share: progress(int(RENDERED + (ANSWERED - RENDERED) * share), 100))
    scores = all_scores(inferred, store, reader.slots)
    write_json(folder / SCORES, scores)
    progress(SCORED, 100)
    video = saved_video(turning_frames(inferred, frames), folder / VIDEO)
    progress(FILMED, 100)
    note = f"Answers of {MODEL}: {search_words(reader.search)}."
    decomposition_figure(inferred, "complete", note).save(folder / LAYERS)
    truth = stored_pictures(store)
    contact_sheet(truth, zoom=2).save(folder / SHEET)
    facts = model_facts(MODEL, sum(part.numel() for part in reader.model.parameters()))
    story = Story(facts, inferred, held_out, visible_objects(truth), scores, seed)
    page = report_page(story, (folder / SHEET).read_bytes(), video, next_commands(store.path), REPEATS)
    with replacing(out / REPORT) as draft:
        draft.write_text(page, encoding="utf-8")
    progress(100, 100)
    return Demo(out / REPORT, folder / SHEET, video, store.path, scores, seed)


def decomposed(reader: Reader, seen: Float[Tensor, "S M 3 H W"], listener: Listener) -> list[InferredScene]:
    """Scenes side by side, a thread each: they do not know of each other, and one alone is too little for two cores."""
    shares = [0.0] * len(seen)

    def one(index: int) -> InferredScene:
        def listen(share: float) -> None:
            shares[index] = share
            listener(sum(shares) / len(shares))

        with heard(listen):
            return reader.decompose(seen[index], warn=False)

    with ThreadPoolExecutor(min(len(seen), os.cpu_count() or 1)) as threads:
        inferred = list(threads.map(one, range(len(seen))))
    listener(1.0)
    return inferred


def all_scores(scenes: Sequence[InferredScene], store: Store, slots: int) -> Scores:
    """Of the very answers that are shown, and of the method beside them."""
    plan = Plan(split=SPLIT, views=VIEWS, slots=slots, repeats=REPEATS, extras=False)
    return {MODEL: scores_of_answers(scenes, store), BESIDE: scores_of(method_class(BESIDE)(), store, plan)}


def scores_of_answers(scenes: Sequence[InferredScene], store: Store) -> dict[str, Values]:
    dataset, parts = SceneDataset(store.split(SPLIT)), []
    for index, scene in enumerate(scenes):
        truth = dataset.truth([index], FirstViews(VIEWS))
        assert scene.answer is not None  # it was seen
        parts.append(score_scenes(scene.answer.decomposition(), truth))
    scores = concatenated(parts)
    return {"paper": scores.paper(), "pooled": scores.pooled()}


def scores_of(method: Method, store: Store, plan: Plan) -> dict[str, Values]:
    """Over all repeats, in both conventions."""
    repeats = evaluate(method, store, plan)
    found = repeats.select(np.arange(repeats.scenes))
    return {kind: found[kind] for kind in ("paper", "pooled")}


def require_own(out: Path) -> None:
    """A page that somebody else wrote is not ours to replace."""
    require_folder(out)
    report = out / REPORT
    if report.exists() and not (report.is_file() and is_report(report.read_text(encoding="utf-8", errors="replace"))):
        raise UserError(f"{report}: not a page of this demo, and it would be replaced; choose another --out")


def demo_scenes(data: Path, seed: int, scenes: int, progress: OnProgress) -> Store:
    """A small data set, made unless the same one is there already."""
    if (data / "meta.json").exists():
        store = Store.open(data)
        plan = store.meta.plan
        if (plan.preset, plan.seed, store.splits) == (PRESET, seed, (SPLIT,)) and plan.splits[SPLIT].scenes == scenes:
            progress(scenes, scenes)
            return store
        raise UserError(f"{data}: holds another data set; remove it, or choose another --out")
    world = data_preset(PRESET).world(None)
    make_dataset(DatasetRecipe(world, {SPLIT: scenes}, preset=PRESET, seed=seed), data, batch=1, progress=progress)
    return Store.open(data)


def pictures_of(store: Store) -> tuple[Float[Tensor, "S M 3 H W"], Float[Tensor, "S V 3 H W"]]:
    """What the model sees, and what is held out."""
    dataset = SceneDataset(store.split(SPLIT))
    every = range(len(dataset))
    return dataset.batch(every, FirstViews(VIEWS)).image, dataset.batch(every, LastViews(NEW_VIEWS)).image


def stored_pictures(store: Store) -> Pictures:
    """The truth about the views that the model sees."""
    arrays = store.split(SPLIT)
    return Pictures(**{key: np.asarray(array) for key, array in arrays.arrays.items()}).first_views(VIEWS)


def visible_objects(truth: Pictures) -> list[int]:
    """How many objects can be seen at all, a scene: what the counting score compares with."""
    assert truth.segment is not None
    return [int((np.unique(segment) != BACKGROUND).sum()) for segment in truth.segment]


def saved_video(frames: Frames, stem: Path) -> Path:
    """MP4, or a GIF on machines that have no ffmpeg."""
    try:
        return save_mp4(frames, stem.with_suffix(".mp4"))
    except UserError:
        return save_gif(frames, stem.with_suffix(".gif"))


def program() -> str:
    """How this installation is called from this folder."""
    if shutil.which("viewslots"):
        return "viewslots"
    beside = Path(sys.executable).parent / "viewslots"
    if not beside.is_file():
        return f"{shlex.quote(sys.executable)} -m viewslots"
    near = os.path.relpath(beside)
    return shlex.quote(str(beside) if near.startswith("..") else near)


def next_commands(data: Path) -> list[tuple[str, str]]:
    """What to run next, as it can be typed here, and what each is for."""
    call, scenes = program(), shlex.quote(str(data))
    return [
        (f"{call} explore", "a local page on which you turn the camera and take objects out yourself"),
        (f"{call} decompose {MODEL} PICTURE... --out layers", "your own pictures of one scene"),
        (
            f"{call} figures {MODEL} --data {scenes} --out figures",
            "all figures of these scenes, ready for print",
        ),
        (f"{call} train compact --data live --run runs/mine", "train a model of your own: the paper's, in small"),
    ]
