"""Posterior search, ours: the shortest description of the pictures that can be found, with the weights as they are.

The paper answers with one run of the inference and a sample of the latents. Which slots find which objects depends on
the start; nearly all surplus objects are second copies of one that another slot holds; objects that were missed stay
missed; and codes are only as good as one pass of the networks makes them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from viewslots.methods.contract import Search
from viewslots.methods.ocloc.generation import binary_logit
from viewslots.methods.ocloc.schedule import Annealing
from viewslots.methods.ocloc.variables import Latents, Layers, Noise, Posterior, Rendering
from viewslots.pulse import beat
from viewslots.types import SceneBatch

PRUNED = -30.0
"""Log-odds of the presence of an object that was left out."""
RATE = 0.05
"""Step size of the refinement at its start; codes have a prior of width 1."""
PASS = 4.0
"""Time of a start with its pruning, or of a look at the drawing, over that of a gradient step: about 4 on a CPU."""
CODES = ("mu_view", "mu_bck", "mu_attr")


@runtime_checkable
class Describer(Protocol):
    """What a model must be able to tell. All lengths in nats, scene by scene."""

    def infer_posteriors(self, batch: SceneBatch, noises: Sequence[Noise]) -> list[Posterior]: ...

    def looked_at(self, batch: SceneBatch, posterior: Posterior) -> Posterior: ...

    def find_objects(self, batch: SceneBatch, given: Posterior, noise: Noise) -> Posterior: ...

    def estimate_views(self, batch: SceneBatch, given: Posterior, noise: Noise) -> Posterior: ...

    def layers(self, latents: Latents) -> Layers: ...

    def show(self, layers: Layers, latents: Latents, annealing: Annealing) -> Rendering: ...

    def description_length(
        self, batch: SceneBatch, posterior: Posterior, latents: Latents, annealing: Annealing
    ) -> Float[Tensor, "B"]: ...

    def reconstruction_cost(
        self, batch: SceneBatch, layers: Layers, latents: Latents, annealing: Annealing
    ) -> Float[Tensor, "B"]: ...

    def object_costs(self, posterior: Posterior, annealing: Annealing) -> Float[Tensor, "B K"]: ...


def searched(
    model: Describer, batch: SceneBatch, noises: Sequence[Noise], annealing: Annealing, search: Search
) -> Posterior:
    """Its `most_likely` latents are the answer. `noises`: one for every start, then one for every further look."""
    pulse = Pulse(search, len(noises) - search.starts)

    def prune(posterior: Posterior) -> Posterior:
        return pruned(model, batch, posterior, annealing)

    def look(posterior: Posterior) -> Posterior:
        return looked_at(model, batch, posterior)

    def refine(posterior: Posterior) -> Posterior:
        return refined(model, batch, posterior, annealing, search.refinement, pulse=pulse)

    found = []
    for posterior in model.infer_posteriors(batch, [still(noise) for noise in noises[: search.starts]]):
        found.append(of_present(prune, posterior))
        pulse(PASS)
    best = of_present(look, shortest(model, batch, found, annealing))
    pulse(PASS)
    best = of_present(refine, best)
    for noise in noises[search.starts :]:
        best = with_further_look(model, batch, best, noise, annealing)
        pulse(PASS)
        best = of_present(refine, best)
    best = of_present(prune, best)
    return with_objects(best, likeliest_first(best))


class Pulse:
    """How far a search is: passes of the inference and gradient steps, in the time of a gradient step."""

    def __init__(self, search: Search, looks: int) -> None:
        self._total = PASS * (search.starts + 1 + looks) + search.refinement * (1 + looks)
        self._done = 0.0

    def __call__(self, more: float = 1.0) -> None:
        self._done += more
        beat(self._done, self._total)


def searched_views(
    model: Describer, batch: SceneBatch, given: Posterior, noise: Noise, annealing: Annealing, search: Search
) -> Posterior:
    """A known scene from the viewpoints of further pictures; they alone are sought."""
    found = model.estimate_views(batch, given, noise)
    return refined(model, batch, found, annealing, search.refinement, codes=["mu_view"])


def looked_at(model: Describer, batch: SceneBatch, posterior: Posterior) -> Posterior:
    """After a look at the drawing, in which only what is likely there has a part.

    Else the answer about a scene would depend on the others in its batch: how many empty slots are drawn does.
    """
    absent = posterior.logit_kappa < 0
    seen = model.looked_at(batch, replace(posterior, logit_kappa=posterior.logit_kappa.masked_fill(absent, PRUNED)))
    return replace(seen, logit_kappa=torch.where(absent, posterior.logit_kappa, seen.logit_kappa))


def still(noise: Noise) -> Noise:
    """The same start, but the background is the slot with the largest pi, not a sample."""
    return replace(noise, background=torch.zeros_like(noise.background))


def most_likely(posterior: Posterior) -> Latents:
    """Means, and the objects that are more likely present than not."""
    present = binary_logit(posterior.logit_kappa >= 0)
    return Latents(posterior.mu_view, posterior.mu_bck, posterior.mu_attr, present)


def shortest(model: Describer, batch: SceneBatch, several: Sequence[Posterior], annealing: Annealing) -> Posterior:
    """Of every scene the one with the shortest description; the first of equals, never NaN if there is another."""
    if len(several) == 1:
        return several[0]
    lengths = [length_of(model, batch, one, annealing) for one in several]
    return taken(several, torch.stack(lengths).nan_to_num(nan=torch.inf).argmin(0))


def length_of(model: Describer, batch: SceneBatch, posterior: Posterior, annealing: Annealing) -> Float[Tensor, "B"]:
    """Of its most likely latents. What is absent costs nothing."""
    shown, _ = parted(posterior)
    return model.description_length(batch, shown, most_likely(shown), annealing)


def taken(several: Sequence[Posterior], best: Int[Tensor, "B"]) -> Posterior:
    """Scene b of the posterior that best[b] names."""
    scenes = torch.arange(len(best), device=best.device)
    chosen = {name: torch.stack([getattr(value, name) for value in several])[best, scenes] for name in vars(several[0])}
    return replace(several[0], **chosen)


def pruned(model: Describer, batch: SceneBatch, posterior: Posterior, annealing: Annealing) -> Posterior:
    """Prune objects that cost more nats than they save, and what is then not seen.

    A shadow that no object reaches is worth many nats; but a slot that draws nothing else is no object.
    """
    latents = most_likely(posterior)
    layers, prices, likely = model.layers(latents), model.object_costs(posterior, annealing), latents.logit_prs > 0

    def only(shown: Bool[Tensor, "B K"]) -> Latents:
        return replace(latents, logit_prs=binary_logit(shown))

    def cost(shown: Bool[Tensor, "B K"]) -> Float[Tensor, "B"]:
        return model.reconstruction_cost(batch, layers, only(shown), annealing)

    kept = worth_keeping(likely, prices, cost)
    seen = seen_objects(model.show(layers, only(kept), annealing).perceived, batch.view_mask)
    if (kept & ~seen).any():
        kept = worth_keeping(kept & seen, prices, cost)
    surplus = likely & ~kept
    return replace(posterior, logit_kappa=posterior.logit_kappa.masked_fill(surplus, PRUNED))


def seen_objects(perceived: Float[Tensor, "B M L H W"], view_mask: Bool[Tensor, "B M"]) -> Bool[Tensor, "B K"]:
    """Objects that have more of some pixel of a real view than any other layer."""
    B, L = len(perceived), perceived.shape[2]
    largest = torch.where(view_mask[:, :, None, None], perceived.argmax(2), 0).flatten(1)
    seen = torch.zeros(B, L, dtype=torch.bool, device=perceived.device).scatter_(1, largest, True)
    return seen[:, 1:]


def worth_keeping(
    present: Bool[Tensor, "B K"],
    prices: Float[Tensor, "B K"],
    cost: Callable[[Bool[Tensor, "B K"]], Float[Tensor, "B"]],
) -> Bool[Tensor, "B K"]:
    """Present objects, without those whose price is higher than what the pictures lose without them.

    `cost`: the reconstruction cost with these objects present. Of each scene the object that saves least goes first,
    and the others are asked again: of two copies, one stays.
    """
    missed = cost(present)
    slots = torch.arange(present.shape[1], device=present.device)
    while True:
        without = torch.full_like(prices, torch.inf)
        for slot in present.any(0).nonzero().flatten().tolist():
            without[:, slot] = cost(present & (slots != slot))
        worth = torch.where(present, without - missed[:, None] - prices, torch.inf)
        least, slot_of_least = worth.min(1)
        surplus = F.one_hot(slot_of_least, len(slots)).bool() & (least < 0)[:, None]
        if not surplus.any():
            return present
        present = present & ~surplus
        missed = torch.where(surplus, without, 0.0).sum(1) + torch.where(surplus.any(1), 0.0, missed)


def refined(
    model: Describer,
    batch: SceneBatch,
    posterior: Posterior,
    annealing: Annealing,
    steps: int,
    codes: Sequence[str] = CODES,
    pulse: Callable[[], None] = lambda: None,
) -> Posterior:
    """The same with means that describe the pictures in fewer nats: gradient steps that grow smaller, by Adam.

    Scenes do not influence each other. One that ends with a longer description than it had keeps what it had. What the
    slots hold, y_view and y_attr, stays as inference left it.
    """
    if steps == 0:
        return posterior
    with torch.inference_mode(False), torch.enable_grad():
        batch, posterior = differentiable(batch), differentiable(posterior)
        free = {name: getattr(posterior, name).detach().clone().requires_grad_() for name in codes}
        optimiser = torch.optim.Adam(free.values(), RATE)
        for step in range(steps):
            now = replace(posterior, **free)
            length = model.description_length(batch, now, most_likely(now), annealing).sum()
            gradients = torch.autograd.grad(length, list(free.values()))
            for value, gradient in zip(free.values(), gradients, strict=True):
                value.grad = gradient
            optimiser.param_groups[0]["lr"] = RATE * (1 - step / steps)
            optimiser.step()
            pulse()
    better = replace(posterior, **{name: value.detach() for name, value in free.items()})
    return shortest(model, batch, [posterior, better], annealing)


T = TypeVar("T", SceneBatch, Posterior)


def differentiable(values: T) -> T:
    """The same where there may be gradients, also if it was made in inference mode."""
    tensors = {name: value for name, value in vars(values).items() if isinstance(value, Tensor)}
    copies = {name: value.clone() for name, value in tensors.items() if value.is_inference()}
    return replace(values, **copies)


def with_further_look(
    model: Describer, batch: SceneBatch, known: Posterior, noise: Noise, annealing: Annealing
) -> Posterior:
    """With objects that were missed, where that makes the description shorter.

    All that was found is painted over with the background, and inference looks for objects in what is left, from the
    viewpoints that it found first. If there are more objects than slots, the most likely ones stay. What is known is
    pruned first: a slot that is no object would make its description shorter than one with an object more.
    """

    def prune(shown: Posterior) -> Posterior:
        return pruned(model, batch, shown, annealing)

    known = of_present(prune, known)
    latents = most_likely(parted(known)[0])
    shown = model.show(model.layers(latents), latents, annealing)
    bare = shown.perceived[:, :, :1]
    left = replace(batch, image=bare * batch.image + (1 - bare) * shown.background)
    both = joined(known, model.find_objects(left, known, still(noise)))
    kept = of_present(prune, both)
    more = with_objects(kept, likeliest_first(kept)[:, : known.logit_kappa.shape[1]])
    return shortest(model, batch, [known, more], annealing)


OF_OBJECTS = ("mu_attr", "log_sigma_attr", "tau", "logit_kappa")


def joined(known: Posterior, more: Posterior) -> Posterior:
    """The objects of both, all else as it is known."""
    objects = {name: torch.cat([getattr(known, name), getattr(more, name)], 1) for name in OF_OBJECTS}
    return replace(known, y_attr=torch.cat([known.y_attr, more.y_attr[:, 1:]], 1), **objects)


def likeliest_first(posterior: Posterior) -> Int[Tensor, "B K"]:
    """Objects by how likely they are present; of equals the first goes first, on every device."""
    return posterior.logit_kappa.argsort(dim=1, descending=True, stable=True)


def parted(posterior: Posterior) -> tuple[Posterior, Posterior]:
    """The objects that are there, and slots that are empty in every scene, which need not be drawn."""
    slots, count = likeliest_first(posterior), max(1, int((posterior.logit_kappa >= 0).sum(1).max()))
    return with_objects(posterior, slots[:, :count]), with_objects(posterior, slots[:, count:])


def of_present(change: Callable[[Posterior], Posterior], posterior: Posterior) -> Posterior:
    """With a change of what is there; empty slots stay as they are, and come last."""
    shown, absent = parted(posterior)
    return joined(change(shown), absent)


def with_objects(posterior: Posterior, slots: Int[Tensor, "B K"]) -> Posterior:
    """Only these objects."""
    scenes = torch.arange(len(slots), device=slots.device)[:, None]
    objects = {name: getattr(posterior, name)[scenes, slots] for name in OF_OBJECTS}
    y_attr = torch.cat([posterior.y_attr[:, :1], posterior.y_attr[scenes, slots + 1]], 1)
    return replace(posterior, y_attr=y_attr, **objects)
