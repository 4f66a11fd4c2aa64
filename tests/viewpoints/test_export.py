"""A scene as files: what lies in them, read back, is the scene."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from PIL import Image

from viewslots.errors import UserError
from viewslots.viewpoints.edits import keep
from viewslots.viewpoints.export import (
    Numbering,
    export_scene,
    from_run_lengths,
    require_free,
    run_lengths,
    scene_record,
)
from viewslots.viewpoints.scene import InferredScene, Reader


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def slow_run_lengths(mask: np.ndarray) -> dict[str, list[int]]:
    """From COCO's definition: walk down the columns, count equal values, begin with a run of zeros."""
    height, width = mask.shape
    counts, value = [0], False
    for x in range(width):
        for y in range(height):
            if bool(mask[y, x]) != value:
                counts.append(0)
                value = not value
            counts[-1] += 1
    return {"size": [height, width], "counts": counts}


@settings(max_examples=200, deadline=None)
@given(arrays(bool, array_shapes(min_dims=2, max_dims=2, max_side=6)))
def test_run_lengths_against_a_slow_twin_and_back(mask: np.ndarray) -> None:
    encoded = run_lengths(mask)
    assert encoded == slow_run_lengths(mask)
    assert (from_run_lengths(encoded) == mask).all()


def test_run_lengths_by_hand() -> None:
    mask = np.array([[0, 1, 1], [0, 0, 1]], bool)
    assert run_lengths(mask) == {"size": [2, 3], "counts": [2, 1, 1, 2]}
    assert run_lengths(~mask) == {"size": [2, 3], "counts": [0, 2, 1, 1, 2]}
    assert run_lengths(np.zeros((2, 2), bool)) == {"size": [2, 2], "counts": [4]}
    assert run_lengths(np.ones((2, 2), bool)) == {"size": [2, 2], "counts": [0, 4]}
    assert json.dumps(run_lengths(mask))  # plain numbers, not numpy's


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(sum))
def test_any_counts_can_be_read(counts: list[int]) -> None:
    """Other programs may write empty runs."""
    mask = from_run_lengths({"size": [1, sum(counts)], "counts": counts})
    assert mask.sum() == sum(counts[1::2])


def opened(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path), np.float64) / 255


def test_numbers_go_by_presence(scene: InferredScene) -> None:
    assert list(Numbering.of(scene)) == [(1, 0), (2, 3), (3, 2)]
    assert Numbering.of(scene).number(2) == 3


def test_layers_sum_to_the_reconstruction(clevr_scenes: list[InferredScene], tmp_path: Path) -> None:
    scene = clevr_scenes[0]
    export_scene(scene, tmp_path / "out", {})
    for place in range(1, 5):
        layers = [opened(path) for path in (tmp_path / "out/layers").glob(f"view-{place}-*.png")]
        assert len(layers) == scene.count + 1
        together = sum(layer[..., :3] * layer[..., 3:] for layer in layers)
        np.testing.assert_allclose(together, opened(tmp_path / f"out/reconstruction/view-{place}.png"), atol=0.02)
        np.testing.assert_allclose(sum(layer[..., 3] for layer in layers), 1, atol=0.02)


def test_files_hold_what_the_views_show(scene: InferredScene, tmp_path: Path) -> None:
    export_scene(scene, tmp_path / "out", {})
    view = scene.render(scene.views[1])
    for number, k in ((1, 0), (2, 3), (3, 2)):
        seen = opened(tmp_path / f"out/layers/view-2-object-{number}.png")
        whole = opened(tmp_path / f"out/complete/view-2-object-{number}.png")
        np.testing.assert_allclose(seen[..., 3], view.masks[k + 1], atol=0.003)
        np.testing.assert_allclose(whole[..., 3], view.complete[k], atol=0.003)
        colour = view.appearance[k].clamp(0, 1).permute(1, 2, 0)
        np.testing.assert_allclose(seen[..., :3], colour, atol=0.003)
        np.testing.assert_allclose(whole[..., :3], colour, atol=0.003)
    assert scene.images is not None
    observed = opened(tmp_path / "out/observation/view-3.png")
    np.testing.assert_allclose(observed, scene.images[2].permute(1, 2, 0), atol=0.003)


def test_scene_json_says_all(scene: InferredScene, tmp_path: Path) -> None:
    out = tmp_path / "out"
    answer = export_scene(scene, out, {"note": "ours"}, [Image.new("RGB", (3, 3))])
    record = json.loads((out / "scene.json").read_text())
    assert record == answer
    assert (record["count"], record["model"], record["note"], record["warning"]) == (3, "small", "ours", None)
    assert [item["slot"] for item in record["objects"]] == [0, 3, 2]
    np.testing.assert_allclose(record["presence"], scene.presence)
    np.testing.assert_allclose(record["viewpoints"], scene.views)
    on_disk = sorted(str(path.relative_to(out)) for path in out.rglob("*.png"))
    assert record["files"] == on_disk
    assert "sheet.png" in on_disk
    slots = {1: 0, 2: 3, 3: 2}
    for m, said in enumerate(record["views"]):
        view = scene.render(scene.views[m])
        assert [slots[number] for number in said["nearest_first"]] == view.nearest_first()
        layers = np.stack(
            [from_run_lengths(said["background"]), *(from_run_lengths(said["masks"][str(n)]) for n in slots)]
        )
        assert (layers.sum(0) == 1).all()
        order = [0, *(k + 1 for k in slots.values())]
        assert (np.array(order)[layers.argmax(0)] == view.masks.numpy().argmax(0)).all()
        for number, k in slots.items():
            assert (from_run_lengths(said["complete"][str(number)]) == (view.complete[k].numpy() >= 0.5)).all()
            assert said["order"][str(number)] == pytest.approx(float(view.order[k]))


def test_a_scene_from_the_prior_has_no_observation(reader: Reader, tmp_path: Path) -> None:
    record = export_scene(reader.prior(1, views=2), tmp_path / "out", {})
    assert record["errors"] == []
    assert not [name for name in record["files"] if name.startswith("observation")]
    assert "reconstruction/view-2.png" in record["files"]


def test_errors_are_of_the_edited_scene_and_those_of_familiarity_are_not(clevr_scenes: list[InferredScene]) -> None:
    scene = clevr_scenes[0]
    assert scene.images is not None
    empty = keep(scene, [])
    record = scene_record(empty, empty.render_many(empty.views))
    bare, whole = (
        [
            np.mean((seen.numpy() - one.render(view).image.numpy()) ** 2)
            for seen, view in zip(scene.images, scene.views, strict=True)
        ]
        for one in (empty, scene)
    )
    np.testing.assert_allclose(record["errors"], bare, rtol=1e-4)
    np.testing.assert_allclose(record["familiarity"]["errors"], whole, rtol=1e-4)
    assert min(bare) > 2 * max(whole)


def test_an_earlier_answer_is_replaced_whole(scene: InferredScene, reader: Reader, tmp_path: Path) -> None:
    export_scene(scene, tmp_path, {}, [Image.new("RGB", (3, 3))] * 2)
    (tmp_path / "layers" / "mine.txt").write_text("a note")
    record = export_scene(reader.prior(1, views=1), tmp_path, {})
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.png"))
    assert left == record["files"]
    assert (tmp_path / "layers" / "mine.txt").read_text() == "a note"


def test_an_answer_that_was_cut_off_can_be_repeated(
    scene: InferredScene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Image.Image, "save", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(UserError, match="disk full"):
            export_scene(scene, tmp_path / "out", {})
    assert json.loads((tmp_path / "out/scene.json").read_text())["finished"] is False
    assert export_scene(scene, tmp_path / "out", {})["finished"] is True


def test_folders_of_others_are_left_alone(scene: InferredScene, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    for content in (None, "{}", "not json", '{"kind": "something else"}'):
        if content is not None:
            (tmp_path / "scene.json").write_text(content)
        with pytest.raises(UserError, match="holds something else"):
            export_scene(scene, tmp_path, {})
    assert not (tmp_path / "layers").exists()
    with pytest.raises(UserError, match="is a file"):
        require_free(tmp_path / "thesis.txt")
    (tmp_path / "empty").mkdir()
    require_free(tmp_path / "empty")
    require_free(tmp_path / "new" / "deep")
    with pytest.raises(UserError, match="Not a directory"):
        export_scene(scene, tmp_path / "thesis.txt" / "below", {})


@pytest.mark.parametrize("name", ["layers", "original", "sheet.png", "scene.json"])
def test_planted_links_are_not_followed(scene: InferredScene, tmp_path: Path, name: str) -> None:
    """Whatever they lead to stays as it is: a link in the place of a sheet is replaced, others are refused."""
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    export_scene(scene, out, {}, [Image.new("RGB", (3, 3))])
    if name in ("sheet.png", "scene.json"):
        elsewhere.write_text((out / "scene.json").read_text())
        (out / name).unlink()
    else:
        (out / name).rename(elsewhere)
        (elsewhere / "view-1.png").write_text("a picture of somebody else's")
    (out / name).symlink_to(elsewhere)
    before = {path: path.read_bytes() for path in [elsewhere, *elsewhere.glob("*")] if path.is_file()}
    if name != "sheet.png":
        with pytest.raises(UserError, match=r"link|regular"):
            export_scene(scene, out, {})
    else:
        export_scene(scene, out, {}, [Image.new("RGB", (3, 3))])
        assert not (out / name).is_symlink()
    assert {path: path.read_bytes() for path in before} == before
