"""Scores that are a sum over scenes divided by another: any selection of scenes has its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Ratio:
    """Numerator and denominator, scene by scene; a scene with denominator 0 has nothing to say."""

    numerator: Float[np.ndarray, "S"]
    denominator: Float[np.ndarray, "S"]

    @classmethod
    def of(cls, numerator: Tensor, denominator: Tensor) -> "Ratio":
        return cls(numerator.double().cpu().numpy(), denominator.double().cpu().numpy())

    @classmethod
    def nothing(cls, scenes: int) -> "Ratio":
        return cls(np.zeros(scenes), np.zeros(scenes))

    @property
    def value(self) -> float | None:
        below = float(self.denominator.sum())
        return float(self.numerator.sum()) / below if below > 0 else None


@dataclass(frozen=True)
class SceneRatios:
    """Named ratios of the same S scenes."""

    ratios: Mapping[str, Ratio]

    def values(self) -> dict[str, float | None]:
        return {name: ratio.value for name, ratio in self.ratios.items()}

    def select(self, scenes: Int[np.ndarray, "n"]) -> "SceneRatios":
        """These scenes, in this order, any as often as it is named."""
        chosen = {name: Ratio(one.numerator[scenes], one.denominator[scenes]) for name, one in self.ratios.items()}
        return SceneRatios(chosen)

    def merge(self, other: "SceneRatios") -> "SceneRatios":
        """Further ratios of the same scenes."""
        return SceneRatios({**self.ratios, **other.ratios})

    @staticmethod
    def concatenate(parts: "Sequence[SceneRatios]") -> "SceneRatios":
        """Scenes of several parts with the same names, one after another."""

        def joined(name: str) -> Ratio:
            pairs = [(part.ratios[name].numerator, part.ratios[name].denominator) for part in parts]
            return Ratio(*(np.concatenate(side) for side in zip(*pairs, strict=True)))

        return SceneRatios({name: joined(name) for name in parts[0].ratios})
