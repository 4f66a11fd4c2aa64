"""Do the object codes know what the objects are? Linear and small nonlinear probes to colour, shape, size, material.

Properties that are words are classified, and accuracy is scored; numbers are regressed, and R2 is scored. Beside each
stands what the most frequent word, or the mean, of the fitted objects reaches. Every object that is seen counts: one
that no slot has found is answered as by that baseline, so nothing is won by missing objects.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int
from scipy.optimize import minimize
from torch import Tensor

from viewslots.errors import UserError
from viewslots.metrics.extras import Ratio, winning_layer
from viewslots.metrics.masks import pixel_tables
from viewslots.metrics.objects import UNMATCHED, assign
from viewslots.metrics.probes import CONSTANT, HELD_OUT, Array, Predict, Standard, ridge
from viewslots.types import Decomposition, SceneTruth

Value = str | float | Sequence[float]
PROPERTIES = ("color", "shape", "size", "material")
PROBES = ("baseline", "linear", "mlp")
FOUND = "probe_found"
STRENGTHS = {"linear": tuple(10.0**power for power in range(-2, 4)), "mlp": (0.1, 1.0, 10.0, 100.0)}
"""Weights of the penalty, tried in turn: every fourth scene chooses, then all of them fit."""
HIDDEN = 64
ITERATIONS = 200


@dataclass(frozen=True)
class ObjectRows:
    """Objects that are seen, a row each; one a view, where the codes of different views have nothing in common."""

    scene: Int[np.ndarray, "n"]
    index: Int[np.ndarray, "n"]
    """In the segment."""
    found: Bool[np.ndarray, "n"]
    """Whether a slot of its own has some of its pixels."""
    codes: Float64[np.ndarray, "n D"]
    """Of that slot; they mean nothing for objects that are not found."""

    @classmethod
    def concatenate(cls, parts: "Sequence[ObjectRows]") -> "ObjectRows":
        names = ("scene", "index", "found", "codes")
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})

    def select(self, rows: Bool[np.ndarray, "n"]) -> "ObjectRows":
        return ObjectRows(self.scene[rows], self.index[rows], self.found[rows], self.codes[rows])


def matched_rows(
    codes: Float[Tensor, "B *M K D"], prediction: Decomposition, truth: SceneTruth, scenes: Sequence[int]
) -> ObjectRows:
    """Slots and objects matched by the pixels of the hard masks that they share, as for IoU by "paper".

    `scenes`: the numbers of these B scenes. Codes with an axis of views are matched in each view alone.
    """
    layers, first = prediction.layer_masks.shape[2], int(prediction.has_background)
    if codes.dim() not in (3, 4) or codes.shape[-2] != layers - first:
        raise UserError(f"object codes of shape {list(codes.shape)}, but there are {layers - first} object layers")
    tables = pixel_tables(winning_layer(prediction), layers, truth)
    if codes.dim() == 3:
        tables, codes = tables.sum(1, keepdim=True), codes[:, None]
    units, codes = tables.flatten(0, 1)[:, 1:], codes.flatten(0, 1)
    slot = assign(units[:, :, first:])
    own = units.gather(2, (slot + first).clamp(min=0)[:, :, None])[:, :, 0]
    visible = units.sum(2) > 0
    unit, index = visible.nonzero().unbind(1)
    found = ((own > 0) & (slot != UNMATCHED))[visible]
    chosen = codes[unit, slot[visible].clamp(min=0)]
    scene = torch.tensor(scenes, device=unit.device)[unit // tables.shape[1]]
    return ObjectRows(*(part.cpu().numpy() for part in (scene, index, found, chosen.double())))


@dataclass(frozen=True)
class Kinds:
    """A property by words: which there are among the fitted objects, and which of them each object has."""

    words: Sequence[str]

    @property
    def width(self) -> int:
        return len(self.words)

    def fits(self, value: Value) -> bool:
        return isinstance(value, str)

    def targets(self, values: Sequence[Value]) -> Int[np.ndarray, "n"]:
        """-1 for a word that was never fitted."""
        place = {word: number for number, word in enumerate(self.words)}
        return np.array([place.get(str(value), -1) for value in values], int)

    def cost(self, found: Tensor, wanted: Tensor) -> Tensor:
        """Cross-entropy, summed; words that were never fitted say nothing."""
        return torch.nn.functional.cross_entropy(found, wanted, reduction="sum", ignore_index=-1)

    def baseline(self, targets: Array) -> Array:
        """The most frequent word; of equal ones the first."""
        return np.eye(self.width)[np.bincount(targets, minlength=self.width).argmax()]

    def score(self, found: Float64[np.ndarray, "n C"], wanted: Array, scene: Array, scenes: int) -> Ratio:
        """Accuracy."""
        right = found.argmax(1) == wanted
        return Ratio(np.bincount(scene, right, scenes), np.bincount(scene, minlength=scenes).astype(float))


@dataclass(frozen=True)
class Numbers:
    """A property by T numbers."""

    width: int

    def fits(self, value: Value) -> bool:
        return not isinstance(value, str) and np.size(value) == self.width

    def targets(self, values: Sequence[Value]) -> Float64[np.ndarray, "n T"]:
        return np.array(values, float).reshape(len(values), self.width)

    def cost(self, found: Tensor, wanted: Tensor) -> Tensor:
        """Half the squared error, summed."""
        return (found - wanted).square().sum() / 2

    def baseline(self, targets: Array) -> Array:
        return targets.mean(0)

    def score(self, found: Float64[np.ndarray, "n T"], wanted: Array, scene: Array, scenes: int) -> Ratio:
        """R2 around the mean of these objects, over all T together."""
        total = np.bincount(scene, ((wanted - wanted.mean(0)) ** 2).sum(1), scenes)
        if total.sum() <= CONSTANT * wanted.size:
            return Ratio.nothing(scenes)
        return Ratio(total - np.bincount(scene, ((wanted - found) ** 2).sum(1), scenes), total)


Target = Kinds | Numbers


def target_of(values: Sequence[Value]) -> Target | None:
    """What the fitted objects have in common; None where they differ in kind, or do not differ at all."""
    if values and all(isinstance(value, str) for value in values):
        words = sorted({str(value) for value in values})
        return Kinds(words) if len(words) > 1 else None
    widths = {0 if isinstance(value, str) else np.size(value) for value in values}
    if len(widths) != 1 or 0 in widths:
        return None
    numbers = Numbers(widths.pop())
    return numbers if numbers.targets(values).var(0).sum() > CONSTANT else None


Cost = Callable[[Tensor, Tensor], Tensor]


def network(
    codes: Float64[np.ndarray, "n D"], targets: Array, cost: Cost, widths: Sequence[int], strength: float
) -> Predict:
    """Layers of these widths with ReLU between them, by L-BFGS: min cost + strength / 2 |weights|^2, biases free.

    A single layer starts from 0, where the cost is convex; more of them from the same draws every time.
    """
    shapes = list(zip((codes.shape[1], *widths), widths, strict=False))
    random, single = np.random.default_rng(0), len(shapes) == 1
    scale = [0.0 if single else np.sqrt(6 / (above + below)) for above, below in shapes]
    start = [
        np.append(random.uniform(-one, one, a * b), np.zeros(b)) for one, (a, b) in zip(scale, shapes, strict=True)
    ]
    inputs, wanted = torch.from_numpy(codes), torch.from_numpy(targets)

    def answers(flat: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
        """What the network says, and the sum of its squared weights."""
        squares, used = flat.new_zeros(()), 0
        for layer, (above, below) in enumerate(shapes):
            weight = flat[used : used + above * below].view(above, below)
            bias = flat[used + above * below : (used := used + (above + 1) * below)]
            new, squares = (new.relu() if layer else new) @ weight + bias, squares + weight.square().sum()
        return new, squares

    def value_and_gradient(point: Array) -> tuple[float, Array]:
        with torch.enable_grad():
            flat = torch.from_numpy(point.copy()).requires_grad_()
            found, squares = answers(flat, inputs)
            value = cost(found, wanted) + strength / 2 * squares
            (gradient,) = torch.autograd.grad(value, flat)
        return value.item(), gradient.numpy()

    best = minimize(
        value_and_gradient, np.concatenate(start), jac=True, method="L-BFGS-B", options={"maxiter": ITERATIONS}
    )
    weights = torch.from_numpy(best.x)
    return lambda new: answers(weights, torch.from_numpy(new))[0].detach().numpy()


def fit_one(kind: str, target: Target, codes: Array, targets: Array, strength: float) -> Predict:
    if kind == "linear" and isinstance(target, Numbers):
        return ridge(codes, targets, strength)
    return network(
        codes, targets, target.cost, (target.width,) if kind == "linear" else (HIDDEN, target.width), strength
    )


def fit_best(kind: str, target: Target, rows: ObjectRows, targets: Array) -> Predict:
    """With the penalty that costs least on every fourth scene, fitted again on all."""
    known = np.unique(rows.scene)
    held = np.isin(rows.scene, known[min(HELD_OUT, len(known)) - 1 :: HELD_OUT])
    standard = Standard.of(rows.codes)
    scaled = standard(rows.codes)
    # Found objects may be all alike where only missed ones differ.
    centre, spread = (0.0, 1.0) if isinstance(target, Kinds) else (targets.mean(0), targets.std(0).max() or 1.0)
    wanted = targets if isinstance(target, Kinds) else (targets - centre) / spread

    def error(strength: float) -> float:
        predict = fit_one(kind, target, scaled[~held], wanted[~held], strength)
        return float(target.cost(torch.from_numpy(predict(scaled[held])), torch.from_numpy(wanted[held])))

    tried = STRENGTHS[kind]
    strength = tried[int(np.argmin([error(one) for one in tried]))] if held.any() and not held.all() else tried[-1]
    chosen = fit_one(kind, target, scaled, wanted, strength)
    return lambda new: chosen(standard(new)) * spread + centre


Properties = Mapping[str, Sequence[Value | None]]
"""By name, of every row; None where nothing is told."""


class PropertyProbes:
    """All probes of all properties, fitted once; scored on the codes of any repeat."""

    def __init__(self, rows: ObjectRows, properties: Properties) -> None:
        self.targets: dict[str, Target] = {}
        self.probes: dict[tuple[str, str], Predict] = {}
        self._fallback: dict[str, Array] = {}
        for name, values in properties.items():
            told = np.array([value is not None for value in values], bool)
            target = target_of([value for value in values if value is not None])
            if target is None or not (told & rows.found).any():
                continue
            self.targets[name] = target
            self._fallback[name] = target.baseline(target.targets(_chosen(values, told)))
            usable = told & rows.found
            wanted = target.targets(_chosen(values, usable))
            for kind in PROBES[1:]:
                self.probes[kind, name] = fit_best(kind, target, rows.select(usable), wanted)

    def score(self, rows: ObjectRows, properties: Properties, scenes: int) -> dict[str, Ratio]:
        """`probe_linear_color` and so on, of the scenes 0..scenes-1, and the share of objects that have a slot.

        A value of another kind than the fitted ones, say a number where those are words, counts as not told.
        """
        every = np.bincount(rows.scene, minlength=scenes).astype(float)
        scores = {FOUND: Ratio(np.bincount(rows.scene, rows.found, scenes), every)}
        for name in properties:
            fits = self.targets[name].fits if name in self.targets else lambda value: True
            told = np.array([value is not None and fits(value) for value in properties[name]], bool)
            for kind in PROBES:
                scores[f"probe_{kind}_{name}"] = self._one(kind, name, rows.select(told), properties, told, scenes)
        return scores

    def _one(
        self, kind: str, name: str, rows: ObjectRows, properties: Properties, told: Bool[np.ndarray, "n"], scenes: int
    ) -> Ratio:
        target = self.targets.get(name)
        if target is None or not told.any():
            return Ratio.nothing(scenes)
        found = np.tile(self._fallback[name], (len(rows.scene), 1))
        if kind != "baseline" and rows.found.any():
            found[rows.found] = self.probes[kind, name](rows.codes[rows.found])
        return target.score(found, target.targets(_chosen(properties[name], told)), rows.scene, scenes)


def _chosen(values: Sequence[Value | None], rows: Bool[np.ndarray, "n"]) -> list[Value]:
    return [value for value, chosen in zip(values, rows, strict=True) if chosen and value is not None]
