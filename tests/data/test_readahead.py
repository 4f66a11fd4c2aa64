"""What the system is told of coming batches: exactly their pages, in files and in shards; and never other bits."""

import json
import mmap
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fake_world import LargePictures
from hypothesis import given, settings
from hypothesis import strategies as st

from viewslots.bench import feed as bench
from viewslots.data import readahead
from viewslots.data.dataset import SceneDataset
from viewslots.data.generate import DatasetRecipe, make_dataset
from viewslots.data.readahead import PAGE, ReadAhead, page_runs
from viewslots.data.store import SplitArrays, Store
from viewslots.experiments import experiment
from viewslots.training import feed as feeding
from viewslots.training.distributed import Ranks
from viewslots.training.feed import StoredFeed

SCENES = 9


@pytest.fixture(scope="module", params=[1, 4])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("large") / "set"
    return make_dataset(
        DatasetRecipe(LargePictures(), {"train": SCENES}, preset="large", seed=0, shards=request.param), out
    )


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 40 * PAGE), min_size=1, max_size=12), st.integers(1, 3 * PAGE))
def test_runs_cover_the_pages_and_no_others(starts: list[int], length: int) -> None:
    runs = page_runs(np.array(starts), length)
    told = [page for low, high in runs for page in range(low // PAGE, high // PAGE)]
    assert told == sorted({page for start in starts for page in range(start // PAGE, (start + length - 1) // PAGE + 1)})
    assert all(low % PAGE == high % PAGE == 0 for low, high in runs)


def told_pages(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, int]]:
    """Records what is told: the file by its beginning, and the page."""
    found: list[tuple[bytes, int]] = []

    def record(mapped: mmap.mmap, start: int, end: int) -> None:
        found.extend((mapped[:8192], page) for page in range(start // PAGE, end // PAGE))

    monkeypatch.setattr(readahead, "_will_need", record)
    return found


def pages_of(folder: Path, scene: int, view: int) -> set[tuple[bytes, int]]:
    """By the files alone: pages with bytes of a picture, behind the header of its file."""
    for file in sorted((folder / "train").rglob("image.npy")):
        shard = np.load(file)
        if scene < len(shard):
            size = shard[0, 0].nbytes
            start = 128 + (scene * shard.shape[1] + view) * size
            return {(file.read_bytes()[:8192], byte // PAGE) for byte in range(start, start + size)}
        scene -= len(shard)
    raise AssertionError


def test_the_pages_of_the_pictures_are_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = told_pages(monkeypatch)
    ahead = ReadAhead(Store.open(folder).split("train")["image"])
    for scene in range(SCENES):
        for view in range(3):
            ahead.expect([scene], np.array([[view, -1]]))
            assert sorted(found) == sorted(pages_of(folder, scene, view))
            found.clear()
    ahead.expect([8, 0, 3], np.array([[1, 2], [0, -1], [2, 0]]))
    pairs = [(8, 1), (8, 2), (0, 0), (3, 2), (3, 0)]
    assert sorted(found) == sorted(set.union(*(pages_of(folder, *pair) for pair in pairs)))


def test_the_system_takes_the_hints(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last page of a file, whose end is no page's end."""
    suppress = readahead.suppress
    monkeypatch.setattr(readahead, "suppress", lambda error: suppress())  # nothing is hushed up
    image = Store.open(folder).split("train")["image"]
    ReadAhead(image).expect(range(SCENES), np.tile([0, 1, 2], (SCENES, 1)))


def test_pictures_in_memory_need_no_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    found = told_pages(monkeypatch)
    pictures = LargePictures().render([LargePictures().sample(0, "train", 0)], 3)
    SceneDataset(SplitArrays.from_pictures("train", pictures)).expect([0], np.array([[0]]))
    assert not found


ALONE: dict[str, Any] = {"device": torch.device("cpu"), "ranks": Ranks()}


def feed_of(folder: Path, ahead: int, ranks: Ranks | None = None, shown_at: Any = None) -> StoredFeed:
    split, where = Store.open(folder).split("train"), ALONE | {"ranks": ranks or Ranks()}
    feed = StoredFeed(split, seed=5, batch=2, size=(40, 50), camera=False, shown_at=shown_at, **where)
    feed.steps_ahead = ahead
    return feed


def test_batches_are_the_same_whatever_is_told_and_wherever_one_begins(folder: Path) -> None:
    """Nine scenes are four batches an epoch; eight steps ahead lie two epochs further. Views and their range change."""
    asked = [(step, 1 + (step // 3) % 3, 1.0 if step < 7 else 0.7) for step in range(14)]
    ahead, plain = feed_of(folder, 8), feed_of(folder, 0)
    for step, views, within in [*asked, asked[2], asked[11]]:
        fresh = feed_of(folder, 3)(step, views, within)
        for feed in (ahead, plain):
            batch = feed(step, views, within)
            assert torch.equal(batch.image, fresh.image)
            assert torch.equal(batch.view_mask, fresh.view_mask)


def test_shards_do_not_change_what_a_step_sees(tmp_path: Path) -> None:
    folders = [
        make_dataset(
            DatasetRecipe(LargePictures(), {"train": SCENES}, preset="large", seed=0, shards=n), tmp_path / str(n)
        )
        for n in (1, 2, 9)
    ]
    for rank in range(2):
        feeds = [feed_of(folder, 8, Ranks(rank, 2)) for folder in folders]
        for step in range(9):
            first, *others = [feed(step, 2).image for feed in feeds]
            assert all(torch.equal(first, other) for other in others)


def test_every_step_is_told_once_and_before_its_turn(folder: Path) -> None:
    feed, log = feed_of(folder, 3), list[Any]()
    expect, batch_of = feed.data.expect, feed.data.batch_of
    feed.data.expect = lambda *chosen: (log.append(("told", chosen[0])), expect(*chosen))[1]  # type: ignore[method-assign]
    feed.data.batch_of = lambda *chosen: (log.append(("read", chosen[0])), batch_of(*chosen))[1]  # type: ignore[method-assign]
    for step in range(12):
        feed(step, 2)
    told, read = ([scenes for what, scenes in log if what == which] for which in ("told", "read"))
    assert len(told) == 12 + 3
    assert told[:12] == read
    turns = [place for place, (what, _) in enumerate(log) if what == "read"]
    for step, place in enumerate(turns):
        assert sum(what == "told" for what, _ in log[:place]) == step + 1 + 3


def counted(feed: StoredFeed, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """Everything that is drawn, told and read, as (scenes, views of each)."""
    log: dict[str, list[Any]] = {"table": [], "expect": [], "batch_of": []}
    for name, found in log.items():
        asked = getattr(feed.data, name)

        def noted(*words: Any, asked: Any = asked, found: list[Any] = found, **named: Any) -> Any:
            found.append((list(words[0]), words[1].tolist() if isinstance(words[1], np.ndarray) else None))
            return asked(*words, **named)

        monkeypatch.setattr(feed.data, name, noted)
    return log


RAMP = replace(experiment("tiny").optimisation, single_view_steps=4, neighbours=0.4, neighbour_steps=15)


def test_on_a_ramp_every_step_is_drawn_and_told_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One view for 4 steps, then two, from a share of neighbours that grows until step 15."""

    def shown_at(step: int) -> tuple[int, float]:
        return RAMP.views_at(step, 2), RAMP.within_at(step)

    feed = feed_of(folder, 8, shown_at=shown_at)
    log = counted(feed, monkeypatch)
    for step in range(20):
        fresh = feed_of(folder, 0)(step, *shown_at(step))
        assert torch.equal(feed(step, *shown_at(step)).image, fresh.image)
    assert len(log["table"]) == len(log["expect"]) == 20 + 8
    assert log["expect"][:20] == log["batch_of"]


def test_who_does_not_say_what_comes_pays_for_one_draw_more(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = feed_of(folder, 8)
    log = counted(feed, monkeypatch)
    for step in range(20):
        feed(step, 2, 0.4 + 0.03 * step)
    assert len(log["expect"]) == 20 + 8
    assert len(log["table"]) == 20 + 8 + 19


def test_nothing_is_drawn_ahead_of_pictures_in_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    split = Store.open(folder).split("train")
    arrays = {key: np.array(array) for key, array in split.arrays.items()}
    feed = StoredFeed(replace(split, arrays=arrays), seed=5, batch=2, size=(40, 50), camera=False, **ALONE)
    log = counted(feed, monkeypatch)
    for step in range(6):
        feed(step, 2)
    assert (len(log["table"]), len(log["expect"])) == (6, 0)


@pytest.mark.parametrize(("pictures", "steps"), [(1, 1), (4, 1), (11, 2), (12, 3), (1000, 8)])
def test_bytes_bound_how_far_ahead_is_told(
    folder: Path, pictures: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch is 2 scenes in 2 views."""
    size = Store.open(folder).split("train").size
    monkeypatch.setattr(feeding, "BYTES_AHEAD", pictures * size.height * size.width * 3)
    feed = feed_of(folder, 8)
    log = counted(feed, monkeypatch)
    for step in range(4):
        feed(step, 2)
        assert len(log["expect"]) == step + 1 + steps


def test_the_benchmark_says_what_is_cold(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "PICTURES", 20)
    files = sorted((folder / "train").rglob("image.npy"))
    for file in files:
        file.read_bytes()
    assert bench.share_in_memory(files) == 1.0
    result = json.loads(json.dumps(bench.bench_feed(0.0, 0, folder)))
    assert result["batches_per_second"]["warm"] > 0
    assert result["data"]["files"] == len(files)
    if result["share_kept_after_drop"] > bench.KEPT:  # a folder in memory
        assert "cold" not in result["batches_per_second"]
        assert "kept" in result["cold_not_measured"]
    else:
        rates, ratios = result["batches_per_second"], result["ratios"]
        assert ratios["cold_over_warm"] == pytest.approx(rates["cold"] / rates["warm"])
        assert ratios["read_ahead_over_none"] == pytest.approx(rates["cold"] / rates["cold_without_read_ahead"])


def test_what_the_system_will_not_drop_is_not_called_cold(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "posix_fadvise", lambda *words: None)
    for file in (folder / "train").rglob("image.npy"):
        file.read_bytes()
    result = bench.bench_feed(0.0, 0, folder)
    assert result["share_kept_after_drop"] == 1.0
    assert set(result["batches_per_second"]) == {"warm"}
    assert "kept 100%" in result["cold_not_measured"]
