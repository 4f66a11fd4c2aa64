"""The probes against scikit-learn's, and on codes that know, half know or do not know the camera."""

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score

from viewslots.metrics.probes import (
    CAMERA_SCORES,
    SETTINGS,
    STRENGTHS,
    WIDTHS,
    CameraProbes,
    Standard,
    camera_targets,
    explained,
    fit_probes,
    kernel_ridge,
    ridge,
)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def cameras(rng: np.random.Generator, scenes: int, views: int) -> np.ndarray:
    azimuth, elevation = rng.uniform(0, np.pi, (scenes, views)), rng.uniform(0.5, 0.8, (scenes, views))
    distance = rng.uniform(10.75, 11.75, (scenes, views))
    flat = distance * np.cos(elevation)
    return np.stack([flat * np.cos(azimuth), flat * np.sin(azimuth), distance * np.sin(elevation)], -1)


@pytest.mark.parametrize("strength", [0.01, 3.0])
def test_ridge_is_scikit_learns(rng: np.random.Generator, strength: float) -> None:
    codes, targets, new = rng.normal(size=(40, 5)) + 2, rng.normal(size=(40, 3)) - 4, rng.normal(size=(9, 5))
    expected = Ridge(alpha=strength).fit(codes, targets).predict(new)
    np.testing.assert_allclose(ridge(codes, targets, strength)(new), expected, atol=1e-9)


@pytest.mark.parametrize(("strength", "width"), [(0.01, 0.3), (2.0, 1.0)])
def test_kernel_ridge_is_scikit_learns(rng: np.random.Generator, strength: float, width: float) -> None:
    codes, targets, new = rng.normal(size=(40, 5)), rng.normal(size=(40, 3)) - 4, rng.normal(size=(9, 5))
    model = KernelRidge(alpha=strength, kernel="rbf", gamma=width / 5).fit(codes, targets - targets.mean(0))
    expected = model.predict(new) + targets.mean(0)
    np.testing.assert_allclose(kernel_ridge(codes, targets, strength, width)(new), expected, atol=1e-9)


@pytest.mark.parametrize("kind", ["linear", "kernel"])
def test_the_setting_is_chosen_on_every_fourth_scene_and_fitted_on_all(rng: np.random.Generator, kind: str) -> None:
    codes = rng.normal(size=(12, 3, 4)) * [1, 5, 0.2, 1] + 3
    targets = {"a": codes @ rng.normal(size=(4, 2)) + rng.normal(size=(12, 3, 2)), "b": np.sin(codes[..., :1])}
    new = rng.normal(size=(8, 4)) + 3
    scaled = (codes - codes.mean((0, 1))) / codes.std((0, 1))
    fit_rows, held_rows = scaled[[0, 1, 2, 4, 5, 6, 8, 9, 10]].reshape(-1, 4), scaled[[3, 7, 11]].reshape(-1, 4)
    probes = fit_probes(kind, codes, targets)
    for name, values in targets.items():
        fitting, held = values[[0, 1, 2, 4, 5, 6, 8, 9, 10]].reshape(27, -1), values[[3, 7, 11]].reshape(9, -1)
        errors = {}
        for setting in SETTINGS[kind]:
            model, middle = sklearn_probe(setting, fit_rows, fitting)
            errors[setting] = ((model.predict(held_rows).reshape(held.shape) + middle - held) ** 2).sum()
        best = min(errors, key=errors.get)
        model, middle = sklearn_probe(best, scaled.reshape(-1, 4), values.reshape(36, -1))
        expected = model.predict((new - codes.mean((0, 1))) / codes.std((0, 1))).reshape(8, -1) + middle
        np.testing.assert_allclose(probes[name](new), expected, atol=1e-7)


def sklearn_probe(setting: tuple[float, ...], codes: np.ndarray, targets: np.ndarray):
    middle = targets.mean(0)
    if len(setting) == 1:
        return Ridge(alpha=setting[0]).fit(codes, targets - middle), middle
    model = KernelRidge(alpha=setting[0], kernel="rbf", gamma=setting[1] / codes.shape[1])
    return model.fit(codes, targets - middle), middle


def test_settings() -> None:
    assert len(SETTINGS["linear"]) == len(STRENGTHS)
    assert len(set(SETTINGS["kernel"])) == len(STRENGTHS) * len(WIDTHS)


def test_explained_is_r2(rng: np.random.Generator) -> None:
    codes, targets = rng.normal(size=(6, 3, 2)), rng.normal(size=(6, 3, 2)) * [1, 4]
    found = explained(lambda new: 0.5 * new, codes, targets)
    flat = targets.reshape(-1, 2), 0.5 * codes.reshape(-1, 2)
    assert found.value == pytest.approx(r2_score(*flat, multioutput="variance_weighted"))
    assert found.numerator.shape == (6,)


def test_camera_targets_by_hand() -> None:
    camera = np.array([[[3.0, 4.0, 0.0], [0.0, -2.0, 2.0]]])
    found = camera_targets(camera)
    np.testing.assert_array_equal(found["position"], camera)
    np.testing.assert_allclose(found["distance"], [[[5.0], [8**0.5]]])
    np.testing.assert_allclose(found["azimuth"], [[[0.6, 0.8], [0.0, -1.0]]], atol=1e-12)
    np.testing.assert_allclose(found["elevation"], [[[0.0], [np.pi / 4]]])


def scores(rng: np.random.Generator, code) -> dict[str, float | None]:
    """Probes fitted on 30 scenes and scored on 20 others, with codes that are a function of the camera."""
    fitting, test = cameras(rng, 30, 4), cameras(rng, 20, 4)
    found = CameraProbes(code(fitting), fitting).score(code(test), test)
    assert tuple(found) == CAMERA_SCORES
    return {name: ratio.value for name, ratio in found.items()}


def test_codes_that_are_the_camera_explain_it(rng: np.random.Generator) -> None:
    mix = rng.normal(size=(3, 8))
    found = scores(rng, lambda camera: camera @ mix + 5)
    assert found["camera_linear_position"] > 0.9999
    assert found["camera_kernel_position"] > 0.98


def test_a_bent_code_needs_the_kernel(rng: np.random.Generator) -> None:
    def angle(camera: np.ndarray) -> np.ndarray:
        return 3 * np.arctan2(camera[..., 1:2], camera[..., :1])

    found = scores(rng, angle)
    assert found["camera_kernel_azimuth"] > 0.99
    assert found["camera_linear_azimuth"] < 0.95


def test_codes_that_know_nothing_explain_nothing(rng: np.random.Generator) -> None:
    found = scores(rng, lambda camera: rng.normal(size=(*camera.shape[:2], 4)))
    assert max(found.values()) < 0.1


def test_without_cameras_there_is_nothing_to_explain(rng: np.random.Generator) -> None:
    codes, none = rng.normal(size=(6, 2, 3)), np.zeros((6, 2, 3), np.float32)
    found = CameraProbes(codes, none).score(codes, none)
    assert {ratio.value for ratio in found.values()} == {None}


def test_a_distance_that_is_constant_up_to_rounding_has_no_r2(rng: np.random.Generator) -> None:
    camera = cameras(rng, 6, 2)
    camera = (11 * camera / np.linalg.norm(camera, axis=-1, keepdims=True)).astype(np.float32)
    found = CameraProbes(camera, camera).score(camera, camera)
    assert found["camera_linear_distance"].value is None
    assert found["camera_linear_position"].value > 0.999


def test_constant_codes_do_no_harm(rng: np.random.Generator) -> None:
    standard = Standard.of(np.full((5, 2), 3.0))
    np.testing.assert_array_equal(standard(np.full((1, 2), 4.0)), [[1.0, 1.0]])
    assert scores(rng, lambda camera: np.ones((*camera.shape[:2], 2)))["camera_linear_position"] < 0.05


def test_two_scenes_are_enough_to_fit(rng: np.random.Generator) -> None:
    camera = cameras(rng, 2, 4)
    assert CameraProbes(camera, camera).score(camera, camera)["camera_linear_position"].value > 0.9
