"""Familiarity: statistics by slow twins, the score by hand, and what the shipped models notice."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from viewslots.data.presets import data_preset
from viewslots.errors import UserError
from viewslots.files import read_json, sha256
from viewslots.runs import find_run, shipped_models
from viewslots.viewpoints import familiarity
from viewslots.viewpoints.edits import keep
from viewslots.viewpoints.export import scene_record
from viewslots.viewpoints.familiarity import (
    RATE,
    Familiarity,
    Limits,
    Region,
    Typical,
    familiarity_of,
    picture_errors,
    read_typical,
)
from viewslots.viewpoints.scene import InferredScene, Reader, UnfamiliarPictures
from viewslots.viewpoints.statistics import STATISTICS, picture_statistics


def slow_statistics(pixels: np.ndarray) -> list[float]:
    """Of a picture [64, 64, 3], from the definition: loops over cells, numpy's own deviations."""
    r, g, b = (pixels[..., c] for c in range(3))
    axes = [pixels.mean(-1), r - g, (r + g) / 2 - b]
    found = [axes[0][i : i + 16, j : j + 16].mean() for i in range(0, 64, 16) for j in range(0, 64, 16)]
    found += [axes[1].mean(), axes[2].mean()]
    levels = axes
    for side in (32, 16, 8, 4, 1):
        coarser = []
        for level in levels:
            step = len(level) // side
            means = np.array([[level[i * step : (i + 1) * step, j * step : (j + 1) * step].mean()
                               for j in range(side)] for i in range(side)])  # fmt: skip
            rest = level - np.kron(means, np.ones((step, step)))
            found.append(0.5 * np.log10((rest**2).mean() + 1e-6))
            coarser.append(means)
        levels = coarser
    grey = np.mean([max(pixel) - min(pixel) < 0.08 for pixel in pixels.reshape(-1, 3)])
    return [*found, np.sqrt(grey)]


def test_statistics_against_a_slow_twin() -> None:
    random = np.random.default_rng(0)
    smooth = np.kron(random.random((8, 8, 3)), np.ones((8, 8, 1)))
    pictures = np.stack([random.random((64, 64, 3)), smooth, smooth * [0.5, 0.52, 0.5]])
    told = picture_statistics(torch.from_numpy(pictures).permute(0, 3, 1, 2))
    assert told.shape == (3, STATISTICS)
    np.testing.assert_allclose(told, [slow_statistics(one) for one in pictures], atol=1e-9)


def test_distances_are_mahalanobis() -> None:
    random = np.random.default_rng(1)
    known = random.normal(size=(500, STATISTICS)) @ random.normal(size=(STATISTICS, STATISTICS))
    mean, covariance = known.mean(0), np.cov(known.T)
    around = Region(torch.zeros(2).double(), torch.eye(2).double(), 3.0)
    typical = Typical("x", 1.0, torch.from_numpy(mean), torch.from_numpy(covariance), {}, around)
    asked = random.normal(size=(7, STATISTICS))
    slow = [np.sqrt((one - mean) @ np.linalg.inv(covariance) @ (one - mean)) for one in asked]
    np.testing.assert_allclose(typical.lengths(torch.from_numpy(asked)), slow, rtol=1e-6)


def test_errors_of_pictures(scene: InferredScene) -> None:
    assert scene.images is not None
    expected = [np.mean((seen.numpy() - scene.render(view).image.numpy()) ** 2)
                for seen, view in zip(scene.images, scene.views, strict=True)]  # fmt: skip
    np.testing.assert_allclose(picture_errors(scene).numpy(), expected, rtol=1e-4)
    assert len(picture_errors(scene.reader.prior(0))) == 0


def found(distances: tuple[float, ...], errors: tuple[float, ...]) -> Familiarity:
    return Familiarity("small things", distances, errors, usual_error=0.01, limits=Limits(distance=10.0, error=0.05))


def test_the_score_and_its_words_by_hand() -> None:
    good = found((5.0, 9.9), (0.01, 0.02))
    assert good.scores == pytest.approx((0.5, 0.99))
    assert (good.odd, good.warning) == ([], None)
    far = found((5.0, 30.0, 3.0), (0.01, 0.02, 0.01))
    assert far.odd == [2]
    assert far.warning is not None
    assert far.warning.startswith("picture 2 is unlike what this model was trained on (small things), so do not trust")
    assert "light, colours or detail are unusual (score 3.0; 99 % of scenes that it knows stay below 1)" in far.warning
    bad = found((5.0, 4.0), (0.1, 0.2)).warning
    assert bad is not None
    assert bad.startswith("these pictures are unlike")
    assert "the reconstruction error is 20 times the usual one (score 4.0;" in bad
    assert "light" not in bad
    both = found((11.0,), (0.06,)).warning
    assert both is not None
    assert both.startswith("this picture is unlike")
    assert "unusual and the reconstruction error" in both
    json.dumps(far.to_json())


def test_nothing_is_said_where_nothing_was_measured(scene: InferredScene, compact: Reader) -> None:
    assert scene.familiarity is None
    assert compact.prior(0).familiarity is None  # never seen


def good_file() -> dict[str, object]:
    statistics = {"mean": [0.0] * STATISTICS, "covariance": np.eye(STATISTICS).tolist()}
    limits = {RATE: {"distance": 9.0, "error": 0.01}}
    viewpoints = {"mean": [0.0, 1.0], "covariance": [[2.0, 0.0], [0.0, 1.0]], "limit": 3.0}
    return {"data": "x", "errors": {"0.5": 0.001}, "statistics": statistics, "limits": limits, "viewpoints": viewpoints}


def test_measured_figures_are_read_or_refused(tmp_path: Path) -> None:
    assert read_typical(tmp_path) is None
    file = tmp_path / "typical.json"
    file.write_text(json.dumps(good_file()))
    typical = read_typical(tmp_path)
    assert typical is not None
    assert typical.viewpoints.distance(torch.tensor([2.0, 2.0])) == pytest.approx((4 / 2 + 1) ** 0.5)
    assert typical.lengths(torch.full((1, STATISTICS), 2.0)).item() == pytest.approx(2 * STATISTICS**0.5)
    flat = {"mean": [0.0] * STATISTICS, "covariance": np.zeros((STATISTICS, STATISTICS)).tolist()}
    for change in (
        {"statistics": flat},
        {"statistics": {"mean": [0.0], "covariance": [[1.0]]}},
        {"statistics": 3},
        {"limits": {}},
        {"limits": {RATE: {"distance": -1, "error": 1}}},
        {"limits": {RATE: {"distance": "far", "error": 1}}},
        {"errors": {}},
        {"viewpoints": {}},
        {"viewpoints": {"mean": [0.0], "covariance": [[-1.0]], "limit": 3.0}},
        {"viewpoints": {"mean": [0.0], "covariance": [[1.0]], "limit": 0}},
    ):
        file.write_text(json.dumps(good_file() | change))
        with pytest.raises(UserError, match=r"typical\.json") as error:
            read_typical(tmp_path)
        assert len(str(error.value).splitlines()) == 1
    for bad in ("{}", "[]", "{"):
        file.write_text(bad)
        with pytest.raises(UserError, match=r"typical\.json"):
            read_typical(tmp_path)


def drawing() -> np.ndarray:
    image = Image.new("RGB", (200, 200), "white")
    pen = ImageDraw.Draw(image)
    pen.ellipse((30, 40, 90, 110), outline="black", width=4)
    pen.rectangle((100, 90, 170, 160), fill="red")
    return np.asarray(image)


STRANGE = {
    "grey": lambda: np.full((80, 80, 3), 128, np.uint8),
    "the grey of the floor": lambda: np.full((80, 80, 3), 104, np.uint8),
    "blue": lambda: np.broadcast_to(np.array([20, 40, 200], np.uint8), (80, 80, 3)),
    "noise": lambda: np.random.default_rng(0).integers(0, 256, (80, 80, 3), dtype=np.uint8),
    "drawing": drawing,
}


@pytest.mark.parametrize("kind", STRANGE)
def test_strange_pictures_are_noticed(compact: Reader, kind: str) -> None:
    """Uniform ones are easy to rebuild: their error alone told nothing."""
    with pytest.warns(UnfamiliarPictures, match="^this picture is unlike") as noticed:
        scene = compact.decompose([STRANGE[kind]()])
    assert scene.warning == str(noticed[0].message)
    assert "unfamiliar" in repr(scene)


def test_the_shipped_model_knows_its_kind_of_pictures(compact: Reader, clevr: np.ndarray) -> None:
    """By another renderer than the one it was calibrated with."""
    for pictures in clevr:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert compact.decompose(pictures).warning is None
    mixed = compact.decompose([clevr[0, 0], STRANGE["grey"]()])
    told = mixed.familiarity
    assert told is not None
    assert told.odd == [2]


@pytest.mark.parametrize("name", ["dsprites", "abstract"])
def test_other_worlds_are_noticed(compact: Reader, name: str) -> None:
    """Pictures of our other data sets: warned of, nearly always."""
    world = data_preset(name).world(None)
    pictures = world.render([world.sample(5, "test1", index) for index in range(20)], world.slots("test1")).image
    noticed = [compact.decompose(picture, warn=False).warning is not None for picture in pictures]
    assert np.mean(noticed) >= 0.9


def test_an_edited_scene_keeps_its_pictures(compact: Reader, clevr: np.ndarray) -> None:
    """So what was measured of them holds on, and is written, though an edited scene rebuilds them no more."""
    scene = compact.decompose(clevr[0])
    empty = keep(scene, [])
    assert empty.photos is scene.photos
    assert scene_record(empty, empty.render_many(empty.views))["warning"] is scene.warning is None
    assert familiarity_of(empty) != scene.familiarity


def test_nobody_waits_for_what_nobody_asks(compact: Reader, clevr: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are drawn to be compared when a scene's familiarity is asked for, once, edited or not."""
    asked, measured = [], familiarity.picture_errors

    def errors(scene: InferredScene) -> torch.Tensor:
        asked.append(scene)
        return measured(scene)

    monkeypatch.setattr(familiarity, "picture_errors", errors)
    scene = compact.decompose(clevr[0], warn=False)
    empty = keep(scene, [])
    assert asked == []
    assert empty.warning is scene.warning is None
    assert len(asked) == 1


@pytest.mark.parametrize("name", shipped_models())
def test_shipped_figures_belong_to_shipped_weights(name: str) -> None:
    """Whoever ships other weights has to measure again: tools/measure_typical.py."""
    folder = find_run(name)
    assert read_json(folder / "typical.json")["weights_sha256"] == sha256(folder / "model.safetensors")
