"""Posterior search, ours: the shortest description of the pictures that can be found, with the weights as they are.

The paper answers with one run of the inference and a sample of the latents. Which slots find which objects depends on
the start; nearly all surplus objects are second copies of one that another slot holds; objects that were missed stay
missed; and codes are only as good as one pass of the networks makes them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from viewslots.methods.contract import Search
from viewslots.methods.ocloc.choice import Describer, Drawn, most_likely, number_of_views
from viewslots.methods.ocloc.schedule import Annealing
from viewslots.methods.ocloc.variables import Noise, Posterior
from viewslots.pulse import beat
from viewslots.types import SceneBatch

PRUNED = -30.0
"""Log-odds of the presence of an object that was left out."""
RATE = 0.05
"""Step size of the refinement at its start; codes have a prior of width 1."""
PASS = 4.0
"""Time of a start with its pruning, or of a look at the drawing, over that of a gradient step: about 4 on a CPU."""
LOOK = 3 * PASS
"""Likewise of a further look, which infers twice and compares hundreds of choices."""
TOLERANCE = 4.0
"""Nats that a pixel is missed by until little of it counts as explained."""
CODES = ("mu_view", "mu_bck", "mu_attr")
OF_OBJECTS = ("mu_attr", "log_sigma_attr", "tau", "logit_kappa")
WITH_VIEWS = {"image", "view_mask", "camera", "mu_view", "log_sigma_view", "y_view", "z_view", "z_shp", "appearance"}
"""Fields of a batch, of a posterior and of noise whose second axis is that of views."""


def searched(
    model: Describer, batch: SceneBatch, noises: Sequence[Noise], annealing: Annealing, search: Search
) -> Posterior:
    """Its `most_likely` latents are the answer. `noises`: one for every start, with the spare slots, then one for every
    further look, without them."""
    pulse = Pulse(search, len(noises) - search.starts)

    def prune(posterior: Posterior) -> Posterior:
        return pruned(model, batch, posterior, annealing)

    def look(posterior: Posterior) -> Posterior:
        return looked_at(model, batch, posterior)

    def refine(posterior: Posterior) -> Posterior:
        return refined(model, batch, posterior, annealing, search.refinement, pulse=pulse)

    starts = list(map(sound, model.infer_posteriors(batch, [still(noise) for noise in noises[: search.starts]])))
    best, others = best_of(model, batch, starts, annealing, starts[0].logit_kappa.shape[1] - search.spare)
    pulse(PASS * search.starts)
    best = of_present(refine, of_present(look, best))
    pulse(PASS)
    for noise in noises[search.starts :]:
        best = with_further_look(model, batch, best, noise, annealing, others)
        pulse(LOOK)
        best, others = of_present(refine, of_present(look, best)), []
        pulse(PASS)
    best = of_present(prune, best)
    return with_objects(best, likeliest_first(best))


def best_of(
    model: Describer, batch: SceneBatch, starts: Sequence[Posterior], annealing: Annealing, room: int
) -> tuple[Posterior, list[Posterior]]:
    """Of every scene the start with the shortest description, in `room` slots, and the others, empty where they are
    that one. All are pruned."""
    # As scenes of one batch: many objects are drawn and compared at once.
    stacked = {name: torch.cat([getattr(start, name) for start in starts]) for name in vars(starts[0])}
    shown, absent = parted(replace(starts[0], **stacked))
    several = repeated(batch, len(starts))
    drawn = Drawn(model, several, shown, annealing)
    kept = drawn.pruned(drawn.likely, room)
    lengths = drawn.length(kept) + model.background_and_view_kl(several, shown)
    best = lengths.view(len(starts), -1).nan_to_num(nan=torch.inf).argmin(0)
    found = divided(joined(keeping(shown, kept), absent), len(starts))
    others = [keeping(one, (best != number)[:, None]) for number, one in enumerate(found)]
    chosen = taken(found, best)
    return with_objects(chosen, likeliest_first(chosen)[:, :room]), others


def repeated(batch: SceneBatch, times: int) -> SceneBatch:
    return replace(
        batch, image=torch.cat([batch.image] * times), view_mask=torch.cat([batch.view_mask] * times), camera=None
    )


def divided(posterior: Posterior, number: int) -> list[Posterior]:
    """As many posteriors, each of as many scenes."""
    pieces = {name: value.chunk(number) for name, value in vars(posterior).items()}
    return [replace(posterior, **{name: piece[i] for name, piece in pieces.items()}) for i in range(number)]


class Pulse:
    """How far a search is: passes of the inference and gradient steps, in the time of a gradient step."""

    def __init__(self, search: Search, looks: int) -> None:
        self._total = PASS * (search.starts + 1 + looks) + LOOK * looks + search.refinement * (1 + looks)
        self._done = 0.0

    def __call__(self, more: float = 1.0) -> None:
        self._done += more
        beat(self._done, self._total)


def searched_views(
    model: Describer, batch: SceneBatch, given: Posterior, noise: Noise, annealing: Annealing, search: Search
) -> Posterior:
    """A known scene from the viewpoints of further pictures; they alone are sought."""

    def refine(posterior: Posterior) -> Posterior:
        return refined(model, batch, posterior, annealing, search.view_refinement, codes=["mu_view"])

    found = model.estimate_views(batch, without(given, given.logit_kappa < 0), noise)
    return of_present(refine, replace(found, logit_kappa=given.logit_kappa))


def looked_at(model: Describer, batch: SceneBatch, posterior: Posterior) -> Posterior:
    """After a look at the drawing, in which only what is likely there has a part.

    Else the answer about a scene would depend on the others in its batch: how many empty slots are drawn does.
    """
    absent = posterior.logit_kappa < 0
    seen = model.looked_at(batch, posterior, absent)
    return replace(seen, logit_kappa=torch.where(absent, posterior.logit_kappa, seen.logit_kappa))


def still(noise: Noise) -> Noise:
    """The same start, but the background is the slot with the largest pi, not a sample."""
    return replace(noise, background=torch.zeros_like(noise.background))


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
    """Prune objects that cost more nats than they save, and what is then not seen."""
    drawn = Drawn(model, batch, posterior, annealing)
    return keeping(posterior, drawn.pruned(drawn.likely))


def keeping(posterior: Posterior, kept: Bool[Tensor, "B K"]) -> Posterior:
    """Of the objects that are likely there only these; what is unlikely stays as it is."""
    return without(posterior, (posterior.logit_kappa >= 0) & ~kept)


def without(posterior: Posterior, objects: Bool[Tensor, "B K"]) -> Posterior:
    """These are not there."""
    return replace(posterior, logit_kappa=posterior.logit_kappa.masked_fill(objects, PRUNED))


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


T = TypeVar("T", SceneBatch, Posterior, Noise)


def differentiable(values: T) -> T:
    """The same where there may be gradients, also if it was made in inference mode."""
    tensors = {name: value for name, value in vars(values).items() if isinstance(value, Tensor)}
    copies = {name: value.clone() for name, value in tensors.items() if value.is_inference()}
    return replace(values, **copies)


def with_further_look(
    model: Describer,
    batch: SceneBatch,
    known: Posterior,
    noise: Noise,
    annealing: Annealing,
    others: Sequence[Posterior] = (),
) -> Posterior:
    """With objects that were missed, where that makes the description shorter; there are never more than slots.

    All that was found and explains its place is painted over with the background. Inference looks for objects in what
    is left, from the viewpoints that it found first: in all views together, and in each by itself, because what one
    view alone shows is lost in the mean over views. The objects of other starts are asked too: a code says where an
    object is in the scene, so it can be drawn from the known viewpoints and on the known background. What is known is
    pruned first: a slot that is no object would make its description shorter than one with an object more.
    """
    shown, absent = parted(known)
    drawn = Drawn(model, batch, shown, annealing)
    kept = drawn.pruned(drawn.likely)
    drawing, _ = drawn.show(kept)
    explained = (1 - drawing.perceived[:, :, :1]) * (-model.missed(batch, drawing)[:, :, None] / TOLERANCE).exp()
    left = replace(batch, image=torch.lerp(batch.image, drawing.background, explained.to(batch.image)))
    pool, noise = keeping(shown, kept), still(noise)
    places = joined(pool, absent)
    found = [sound(model.find_objects(left, places, noise))]
    if (number_of_views(batch) > 1).any():
        found.append(found_by_view(model, left, places, noise, annealing))
    for other in (*found, *map(sound, others)):
        pool = joined(pool, parted(other)[0])
    drawn = Drawn(model, batch, pool, annealing)
    own = drawn.likely & (drawn.slots < kept.shape[1])
    pool = joined(keeping(pool, drawn.rearranged(own, drawn.likely & ~own, known.logit_kappa.shape[1])), absent)
    return with_objects(pool, likeliest_first(pool)[:, : known.logit_kappa.shape[1]])


def found_by_view(
    model: Describer, batch: SceneBatch, given: Posterior, noise: Noise, annealing: Annealing
) -> Posterior:
    """The objects that each view shows by itself, all as objects of the scene; none of a scene that has one view.

    Of those only that have something to explain in their own view, since each is then drawn in every one.
    """
    B, M = batch.view_mask.shape
    scenes, places = by_view(batch, M), by_view(given, M)
    found = holding(places, objects_in(sound(model.find_objects(scenes, places, by_view(noise, M)))))
    views = number_of_views(batch)
    drawn = Drawn(model, scenes, found, annealing, views.repeat_interleave(M))
    several = batch.view_mask & (views > 1)[:, None]
    found = keeping(found, drawn.hopeful(torch.zeros_like(drawn.likely)) & several.view(-1, 1))
    return holding(given, {name: value.reshape(B, -1, *value.shape[2:]) for name, value in objects_in(found).items()})


def by_view(values: T, views: int) -> T:
    """Every view as a scene of its own, of which all else is the same."""
    tensors = {name: value for name, value in vars(values).items() if value is not None}
    parts = {
        name: value.flatten(0, 1)[:, None] if name in WITH_VIEWS else value.repeat_interleave(views, 0)
        for name, value in tensors.items()
    }
    return replace(values, **parts)


def sound(posterior: Posterior) -> Posterior:
    """Without objects that came to nothing: one that is no number would spoil all that it is compared with."""
    objects = objects_in(posterior)
    logit_kappa = objects.pop("logit_kappa")
    whole = torch.cat([*objects.values(), logit_kappa[..., None]], 2).isfinite().all(2, keepdim=True)
    if whole.all():
        return posterior
    codes = {name: torch.where(whole, value, 0.0) for name, value in objects.items()}
    return holding(posterior, codes | {"logit_kappa": torch.where(whole[..., 0], logit_kappa, PRUNED)})


def joined(known: Posterior, more: Posterior) -> Posterior:
    """The objects of both, all else as it is known."""
    theirs = objects_in(more)
    return holding(known, {name: torch.cat([own, theirs[name]], 1) for name, own in objects_in(known).items()})


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
    return holding(posterior, {name: value[scenes, slots] for name, value in objects_in(posterior).items()})


def objects_in(posterior: Posterior) -> dict[str, Tensor]:
    """All that belongs to one object each, along the second axis: of y_attr, what is not the background's."""
    return {name: getattr(posterior, name) for name in OF_OBJECTS} | {"y_attr": posterior.y_attr[:, 1:]}


def holding(posterior: Posterior, objects: Mapping[str, Tensor]) -> Posterior:
    """With these in place of its objects, as `objects_in` has them."""
    y_attr = torch.cat([posterior.y_attr[:, :1], objects["y_attr"]], 1)
    return replace(posterior, **{name: objects[name] for name in OF_OBJECTS}, y_attr=y_attr)
