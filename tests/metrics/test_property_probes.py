"""Probes of properties against scikit-learn's, matching against a slow loop, and scores against cases by hand."""

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, log_loss, r2_score
from sklearn.neural_network import MLPClassifier, MLPRegressor

from viewslots.errors import UserError
from viewslots.metrics.property_probes import (
    HIDDEN,
    Kinds,
    Numbers,
    ObjectRows,
    PropertyProbes,
    fit_best,
    fit_one,
    matched_rows,
    target_of,
)
from viewslots.types import Decomposition, SceneTruth


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def rows(codes: np.ndarray, found: np.ndarray | None = None) -> ObjectRows:
    """Two objects a scene."""
    count = np.arange(len(codes))
    return ObjectRows(count // 2, count % 2, np.ones(len(codes), bool) if found is None else found, codes)


@pytest.mark.parametrize("strength", [0.1, 5.0])
def test_the_linear_probe_is_scikit_learns(rng: np.random.Generator, strength: float) -> None:
    codes, new, labels = rng.normal(size=(90, 4)), rng.normal(size=(9, 4)), rng.integers(0, 3, 90)
    labels[codes[:, 0] > 0.5] = 2
    odds = fit_one("linear", Kinds("abc"), codes, labels, strength)(new)
    model = LogisticRegression(C=1 / strength, tol=1e-10, max_iter=10_000).fit(codes, labels)
    shares = np.exp(odds) / np.exp(odds).sum(1, keepdims=True)
    np.testing.assert_allclose(shares, model.predict_proba(new), atol=2e-3)
    numbers = rng.normal(size=(90, 2))
    found = fit_one("linear", Numbers(2), codes, numbers, strength)(new)
    np.testing.assert_allclose(found, Ridge(alpha=strength).fit(codes, numbers).predict(new), atol=1e-9)


def test_the_small_network_is_as_good_as_scikit_learns(rng: np.random.Generator) -> None:
    """The same cost and penalty; the minimum that is found depends on the start, so costs are compared."""
    codes, new = rng.normal(size=(2, 300, 3))

    def label(codes: np.ndarray) -> np.ndarray:
        return (codes[:, 0] * codes[:, 1] > 0).astype(int)

    shared = {"hidden_layer_sizes": (HIDDEN,), "alpha": 1.0, "solver": "lbfgs", "random_state": 0, "max_iter": 5000}
    model = MLPClassifier(**shared).fit(codes, label(codes))
    odds = fit_one("mlp", Kinds("ab"), codes, label(codes), 1.0)(new)
    shares = np.exp(odds) / np.exp(odds).sum(1, keepdims=True)
    assert log_loss(label(new), shares) < 1.15 * log_loss(label(new), model.predict_proba(new))
    assert (odds.argmax(1) == label(new)).mean() > 0.9
    linear = fit_one("linear", Kinds("ab"), codes, label(codes), 1.0)(new)
    assert (linear.argmax(1) == label(new)).mean() < 0.65, "no line tells these apart"
    wave = np.sin(2 * codes[:, :1])
    found = fit_one("mlp", Numbers(1), codes, wave, 1.0)(new)[:, 0]
    theirs = MLPRegressor(**shared).fit(codes, wave[:, 0]).predict(new)
    truth = np.sin(2 * new[:, 0])
    assert r2_score(truth, found) > r2_score(truth, theirs) - 0.03


def test_every_fourth_scene_chooses_the_penalty_and_the_same_comes_out_every_time(rng: np.random.Generator) -> None:
    codes, new = 5 + 3 * rng.normal(size=(64, 6)), rng.normal(size=(5, 6))
    values = codes[:, :1] + rng.normal(size=(64, 1))
    target = Numbers(1)
    found = fit_best("linear", target, rows(codes), target.targets(values))
    scaled, wanted = (codes - codes.mean(0)) / codes.std(0), (values - values.mean()) / values.std()
    held = np.arange(64) // 2 % 4 == 3
    errors = {}
    for strength in 10.0 ** np.arange(-2, 4):
        model = Ridge(alpha=strength).fit(scaled[~held], wanted[~held])
        errors[strength] = ((model.predict(scaled[held]).reshape(-1, 1) - wanted[held]) ** 2).sum()
    best = Ridge(alpha=min(errors, key=errors.get)).fit(scaled, wanted)
    expected = best.predict((new - codes.mean(0)) / codes.std(0)).reshape(-1, 1) * values.std() + values.mean()
    np.testing.assert_allclose(found(new), expected, atol=1e-8)
    words = ["red" if code[0] > 5 else "blue" for code in codes]
    probes = [PropertyProbes(rows(codes), {"color": words}) for _ in range(2)]
    scores = [probe.score(rows(codes), {"color": words}, 32) for probe in probes]
    for name in scores[0]:
        np.testing.assert_array_equal(scores[0][name].numerator, scores[1][name].numerator)


def test_scores_by_hand(rng: np.random.Generator) -> None:
    """Codes that are the property; missed objects are answered as by the baseline, and unknown words are wrong."""
    words = ["a", "a", "b", "a", "a", "b", "b", "a"] * 6
    codes = np.stack([np.array(words) == "b", rng.normal(size=48)], 1).astype(float)
    sizes = [[2.0 * (word == "b")] for word in words]
    probes = PropertyProbes(rows(codes), {"color": words, "size": sizes, "shape": ["s"] * 48, "material": [None] * 48})
    test = ["b", "b", "a", "c", "b", None]
    found = np.array([True, False, True, True, True, False])
    values = np.array([[1.0, 0], [1, 0], [0, 0], [0, 0], [1, 0], [1, 0]])
    known = {"color": test, "size": [2.0, 2.0, 0.0, 0.0, 2.0, 2.0], "shape": ["s"] * 6, "material": ["m"] * 6}
    scores = probes.score(rows(values, found), known, 3)
    assert scores["probe_found"].numerator.tolist() == [1, 2, 1]
    assert scores["probe_found"].denominator.tolist() == [2, 2, 2]
    assert scores["probe_linear_color"].numerator.tolist() == [1, 1, 1]
    assert scores["probe_linear_color"].denominator.tolist() == [2, 2, 1]
    assert scores["probe_baseline_color"].numerator.tolist() == [0, 1, 0]
    assert scores["probe_mlp_color"].value == accuracy_score(["b", "b", "a", "c", "b"], ["b", "a", "a", "a", "b"])
    mean = np.mean(sizes)
    truth, predicted = known["size"], [2, mean, 0, 0, 2, mean]
    assert scores["probe_linear_size"].value == pytest.approx(r2_score(truth, predicted), abs=2e-3)
    assert scores["probe_baseline_size"].value == pytest.approx(r2_score(truth, [mean] * 6))
    for name in ("shape", "material"):  # constant, and never told
        assert {scores[f"probe_{kind}_{name}"].value for kind in ("baseline", "linear", "mlp")} == {None}


def test_found_objects_that_are_all_alike(rng: np.random.Generator) -> None:
    """Only missed ones differ: the probe says what it has seen, and no NaN."""
    sizes, found = [1.0, 2.0] * 8, np.arange(16) % 2 == 0
    probes = PropertyProbes(rows(rng.normal(size=(16, 3)), found), {"size": sizes})
    scores = probes.score(rows(rng.normal(size=(16, 3)), found), {"size": sizes}, 8)
    for kind in ("linear", "mlp"):
        assert scores[f"probe_{kind}_size"].value == pytest.approx(r2_score(sizes, [1.0, 1.5] * 8))


@pytest.mark.parametrize("odd", ["large", [1.0, 2.0]])
def test_values_of_another_kind_count_as_not_told(rng: np.random.Generator, odd: str | list[float]) -> None:
    codes = rng.normal(size=(16, 3))
    probes = PropertyProbes(rows(codes), {"size": [1.0, 2.0] * 8, "color": ["a", "b"] * 8})
    mixed = {"size": [1.0, 2.0] * 4 + [odd] * 8, "color": ["a", "b"] * 4 + [3.0] * 8}
    known = {"size": [1.0, 2.0] * 4 + [None] * 8, "color": ["a", "b"] * 4 + [None] * 8}
    found, expected = (probes.score(rows(codes), one, 8) for one in (mixed, known))
    assert {name: one.value for name, one in found.items()} == {name: one.value for name, one in expected.items()}


def test_codes_that_know_nothing_are_no_better_than_the_baseline(rng: np.random.Generator) -> None:
    words = rng.choice(["a", "b", "c"], 400, p=[0.5, 0.3, 0.2]).tolist()
    probes = PropertyProbes(rows(rng.normal(size=(400, 8))), {"color": words})
    scores = probes.score(rows(rng.normal(size=(400, 8))), {"color": words}, 200)
    for kind in ("linear", "mlp"):
        assert scores[f"probe_{kind}_color"].value < scores["probe_baseline_color"].value + 0.05


def test_what_can_be_probed() -> None:
    assert target_of(["red", "blue", "red"]) == Kinds(["blue", "red"])
    assert target_of([1.0, 2.0]) == Numbers(1)
    assert target_of([[1.0, 2.0, 3.0], [1.0, 2.0, 4.0]]) == Numbers(3)
    for values in ([], ["red", "red"], [1.0, 1.0], ["red", 1.0], [1.0, [1.0, 2.0]]):
        assert target_of(values) is None


@pytest.mark.parametrize("has_background", [True, False])
@pytest.mark.parametrize("per_view", [True, False])
def test_matching_against_a_slow_loop(rng: np.random.Generator, has_background: bool, per_view: bool) -> None:
    B, M, L, G, size = 3, 2, 4, 5, 6
    K = L - has_background
    segment = rng.choice([0, 1, 2, 4, 255], (B, M, size, size)).astype(np.uint8)
    masks = torch.from_numpy(rng.random((B, M, L, size, size))).softmax(2)
    mask = torch.tensor([[True, True], [True, False], [True, True]])
    codes = torch.from_numpy(rng.normal(size=(B, M, K, 3) if per_view else (B, K, 3)))
    prediction = Decomposition(torch.zeros(B, M, 3, size, size), masks, has_background, None, None, None, None)
    truth = SceneTruth(view_mask=mask, segment=torch.from_numpy(segment))
    found = matched_rows(codes, prediction, truth, [7, 8, 9])
    layer = masks.numpy().argmax(2)
    expected = []
    for scene in range(B):
        units = [[view] for view in range(M)] if per_view else [list(range(M))]
        for unit in units:
            views = [view for view in unit if mask[scene, view]]
            seen, won = segment[scene, views], layer[scene, views]
            shared = np.array([[((seen == g) & (won == k + has_background)).sum() for k in range(K)] for g in range(G)])
            slot = dict(zip(*linear_sum_assignment(-shared), strict=True))
            for g in range(G):
                if (seen == g).any():
                    own = slot.get(g)
                    there = own is not None and shared[g, own] > 0
                    code = (codes[scene, unit[0]] if per_view else codes[scene])[own] if there else None
                    expected.append((7 + scene, g, there, code))
    assert [tuple(row) for row in zip(found.scene, found.index, found.found, strict=True)] == [e[:3] for e in expected]
    for code, (_, _, there, wanted) in zip(found.codes, expected, strict=True):
        if there:
            np.testing.assert_array_equal(code, wanted)
    with pytest.raises(UserError, match=f"but there are {K} object layers"):
        matched_rows(codes[..., :-1, :], prediction, truth, [7, 8, 9])
