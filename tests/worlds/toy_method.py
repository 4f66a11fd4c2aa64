"""A method that is unlike the others in all that training must not rely on: no background, no presence, no depth, no
annealing, two optimisers with rates of their own, a joint bound on gradients, steps that are no CUDA graph.

Every pixel belongs to the slots as a linear map of its colour says, and each slot has one colour.
"""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from viewslots.methods.config import Amount, Positive, Whole, check_fields, from_values
from viewslots.methods.contract import Losses, Search, TrainableMethod
from viewslots.methods.experiment import Experiment
from viewslots.methods.schedules import Optimisation, Scalar, Schedule, Scheduled
from viewslots.types import Decomposition, SceneBatch


@dataclass(frozen=True)
class ToyConfig:
    image_size: int = 32
    slots: int = 3

    def __post_init__(self) -> None:
        check_fields(self)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "ToyConfig":
        return from_values(cls, values)


@dataclass(frozen=True)
class ToyScheduled(Scheduled):
    price: Scalar = 0.0
    """Of shared pixels."""


@dataclass(frozen=True)
class ToySchedule(Schedule):
    steps: int = 40
    price_end: Amount = 0.5

    def at(self, step: int) -> ToyScheduled:
        return ToyScheduled(price=self.price_end * step / self.steps)


@dataclass(frozen=True)
class ToyOptimisation(Optimisation):
    batch_size: int = 2
    learning_rate: Positive = 0.01
    decay_steps: int = 10
    warmup_steps: Whole = 4
    single_view_steps: Whole = 0
    clip_norm: Amount = 0.02
    colour_rate: Positive = 0.1
    """Of the colours, and the same at every step."""

    def learning_rates_at(self, step: int) -> tuple[float, ...]:
        return (*super().learning_rates_at(step), self.colour_rate)


@dataclass(frozen=True)
class ToyNoise:
    pixels: Float[Tensor, "B M 3 H W"]


class Toy(TrainableMethod[ToyConfig], library_name="viewslots"):
    name = "toy"
    config_class = ToyConfig
    schedule_class = ToySchedule
    optimisation_class = ToyOptimisation
    terms = ("error", "sharing")
    capturable = False

    def __init__(self, config: ToyConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        self.belongs = nn.Linear(3, config.slots)
        self.colours = nn.Parameter(torch.zeros(config.slots, 3))
        source = generator or torch.Generator().manual_seed(0)
        with torch.no_grad():
            for value in self.parameters():
                value.copy_(torch.rand(value.shape, generator=source))

    def draw_noise(self, batch: SceneBatch, generator: torch.Generator, slots: int | None = None) -> ToyNoise:
        return ToyNoise(torch.randn(batch.image.shape, generator=generator, device=generator.device))

    def masks(self, image: Float[Tensor, "B M 3 H W"]) -> Float[Tensor, "B M L H W"]:
        return self.belongs(image.movedim(2, -1)).softmax(-1).movedim(-1, 2)

    def painted(self, masks: Float[Tensor, "B M L H W"]) -> Float[Tensor, "B M 3 H W"]:
        return torch.einsum("bmlhw,lc->bmchw", masks, self.colours)

    def forward(self, batch: SceneBatch, scheduled: ToyScheduled, noise: ToyNoise) -> Losses:
        masks = self.masks(batch.image)
        error = (batch.image + 0.01 * noise.pixels - self.painted(masks)).square().flatten(1).mean(1)
        sharing = torch.special.entr(masks).sum(2).flatten(1).mean(1)
        return Losses(error + scheduled.price * sharing, error, {"error": error, "sharing": sharing})

    def annealed(self) -> ToyScheduled:
        return ToyScheduled()

    def optimisers(self, optimisation: Optimisation) -> list[torch.optim.Optimizer]:
        return [torch.optim.RMSprop(self.belongs.parameters(), lr=0.0), torch.optim.Adam([self.colours], lr=0.0)]

    @torch.no_grad()
    def infer(
        self, batch: SceneBatch, generator: torch.Generator, slots: int | None = None, search: Search | None = None
    ) -> "ToyAnswer":
        self.check_search(search)
        return ToyAnswer(self, batch)


@dataclass(frozen=True)
class ToyAnswer:
    model: Toy
    batch: SceneBatch

    def decomposition(self) -> Decomposition:
        masks = self.model.masks(self.batch.image)
        return Decomposition(
            reconstruction=self.model.painted(masks),
            layer_masks=masks,
            has_background=False,
            complete_shapes=None,
            presence=None,
            presence_probability=None,
            depth_order=None,
        )


PLACE = "toy_method:Toy"
EXPERIMENT = Experiment("toy", "clevr-m1", ToyConfig(), ToySchedule(), ToyOptimisation(), views=2, test_slots=4)
