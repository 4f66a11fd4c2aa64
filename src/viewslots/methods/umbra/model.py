"""Umbra: a trained OCLOC that learns what shadows are, sharper shapes, and not to count an object twice."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from viewslots.methods.contract import Search, TrainableMethod
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.umbra.config import UmbraConfig, UmbraSchedule
from viewslots.methods.umbra.image_model import SHADOW, ShadowedMixture


class Umbra(Ocloc):
    """The latents, priors and inference of OCLOC with another image model; it starts from a trained OCLOC."""

    name = "umbra"
    config_class = UmbraConfig
    schedule_class = UmbraSchedule
    default_search = Search(starts=4, looks=1, refinement=30)

    def __init__(self, config: UmbraConfig, generator: torch.Generator | None = None) -> None:
        super().__init__(config, generator, image_model=ShadowedMixture(config))

    @classmethod
    def config_from(cls, config: UmbraConfig, other: TrainableMethod[Any]) -> UmbraConfig:  # type: ignore[override]
        """All of another Umbra's; from an OCLOC its sizes, but how sharply pictures are compared is its own."""
        if not isinstance(other, Ocloc):
            return config
        if isinstance(other.config, UmbraConfig):
            return other.config
        return UmbraConfig(**vars(config) | vars(other.config) | {"sigma_x": config.sigma_x})

    def weights_from(self, other: nn.Module) -> Mapping[str, Tensor] | None:
        """An OCLOC's weights too: its object decoder gets one more channel, the shadow as it starts."""
        if type(other) is not Ocloc:
            return super().weights_from(other)
        own, given = self.state_dict(), dict(other.state_dict())
        if not given.keys() >= own.keys():
            return None
        for name in self.last_layer_names():
            shadow = own[name].chunk(self.image_model.channels)[SHADOW]
            given[name] = torch.cat([given[name], shadow.to(given[name])])
        return self.with_own_baseline(given)

    def last_layer_names(self) -> list[str]:
        """Of the parameters of the object decoder's last layer, in the state of the whole model."""
        last = {id(parameter) for parameter in self.generation.last_layer().parameters()}
        return [name for name, parameter in self.named_parameters() if id(parameter) in last]
