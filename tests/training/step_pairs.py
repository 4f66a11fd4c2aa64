"""Two ways to take the same steps: the plain loop and the fast one, both from equal states, or each on its own.

Trajectories of two ways that differ by rounding alone part sooner than one expects, for two reasons that lie in the
method, measured on a CPU with the very same loop in single and in double precision. Gradients that are zero but for
rounding (the bias of the depth order, NVIL's first steps) are scaled by Adam to steps of the full rate with a random
sign: weights of g_sel differ by 1.7 rates after one step. And g_sel is read by an arg-max, the choice of a background
slot for each scene, or for each view in the per-view baseline: with 12 choices a step one is soon a near tie, falls the
other way, and the loss jumps by 5e-4 of itself (2 of 3400 nats), where it had agreed to 3e-6. So single steps from
equal states have tight bounds, and trajectories have one that leaves room for a few such choices.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from viewslots.experiments import experiment
from viewslots.training.state import TrainState, gather_state, restore_state
from viewslots.training.step import EagerStep, Model, Precision, Step, fast_step
from viewslots.types import SceneBatch

VIEWS = (1, 1, 3, 3, 1, 3, 3, 3)
"""Of one step after another: both shapes are recorded, and each is used after the other has changed the weights."""


@dataclass
class Walker:
    """A model, its optimisers and its way to take a step."""

    model: Model
    optimisers: Sequence[torch.optim.Optimizer]
    step: Step

    def state(self) -> TrainState:
        return gather_state(self.model, self.optimisers, 0, {})

    def go_to(self, state: TrainState) -> None:
        restore_state(state, self.model, self.optimisers)


def walker(
    kind: Callable[..., Model], preset: str, device: str, fast: bool, precision: Precision, clip_norm: float = 0.0
) -> Walker:
    settings = experiment(preset)
    model = kind(settings.model, torch.Generator().manual_seed(0)).to(device).train()
    optimisers = model.optimisers(settings.optimisation)
    return Walker(model, optimisers, (fast_step if fast else EagerStep)(model, optimisers, precision, clip_norm))


def inputs(model: Model, preset: str, rate: float) -> Iterator[tuple[Any, ...]]:
    """Of one step after another, from the middle of the schedule on."""
    settings, device = experiment(preset), model.device
    generator = torch.Generator(device).manual_seed(1)
    middle = 2 * settings.schedule.steps // 3
    for number, views in enumerate(VIEWS):
        image = torch.rand(4, views, 3, *model.image_size, device=device, generator=generator)
        batch = SceneBatch(image, torch.ones(4, views, dtype=torch.bool, device=device))
        rates = [rate] * len(settings.optimisation.learning_rates_at(0))
        yield batch, model.draw_noise(batch, generator), settings.schedule.at(middle + number), rates


@dataclass(frozen=True)
class Gaps:
    """Largest differences of the steps of a pair, relative to the plain one's."""

    loss: float
    gradient: float
    """Of the gradients of all weights together, as Adam's first moments hold them."""


def gaps_from_equal_states(plain: Walker, fast: Walker, preset: str, rate: float) -> Gaps:
    """The plain one walks; before every step the fast one is put where it stands."""
    losses, gradients = [], []
    for given in inputs(plain.model, preset, rate):
        before = plain.state()
        fast.go_to(before)
        expected, found = (one.step(*given).minimised.item() for one in (plain, fast))
        losses.append(abs(found - expected) / abs(expected))
        wanted, got = (fresh_moments(before, one.state()) for one in (plain, fast))
        gradients.append(float((got - wanted).norm() / wanted.norm()))
    return Gaps(max(losses), max(gradients))


def fresh_moments(before: TrainState, after: TrainState) -> Tensor:
    """What one step has added to Adam's first moments: a tenth of its gradients."""
    names = [name for name in after.tensors if name.startswith("adam.exp_avg.")]
    zero = torch.zeros(())
    return torch.cat([(after.tensors[name] - 0.9 * before.tensors.get(name, zero)).flatten() for name in names])


def losses(one: Walker, preset: str, rate: float) -> list[float]:
    """Each step from where the one before has led."""
    return [one.step(*given).minimised.item() for given in inputs(one.model, preset, rate)]
