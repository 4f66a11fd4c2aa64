"""Which of the objects that were drawn? Objects are drawn once; a search asks what the pictures cost with some of them.

Descriptions are in nats, scene by scene; many choices in many scenes are asked about at once.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from viewslots.methods.ocloc.generation import binary_logit
from viewslots.methods.ocloc.image_model import Canvas
from viewslots.methods.ocloc.schedule import Annealing
from viewslots.methods.ocloc.variables import Latents, Noise, Posterior, Rendering
from viewslots.types import SceneBatch

AT_ONCE = {"cpu": 2**22, "cuda": 2**27}
"""Pixels of objects that are composed at once: what a cache likes, and a bound on the memory."""
SWAPS = 3
"""Objects of a scene that are left out for a moment, to see what others make of their places."""


@runtime_checkable
class Describer(Protocol):
    """What a model must be able to tell. All lengths in nats, scene by scene."""

    def infer_posteriors(self, batch: SceneBatch, noises: Sequence[Noise]) -> list[Posterior]: ...

    def looked_at(
        self, batch: SceneBatch, posterior: Posterior, absent: Bool[Tensor, "B K"] | None = None
    ) -> Posterior: ...

    def find_objects(self, batch: SceneBatch, given: Posterior, noise: Noise) -> Posterior: ...

    def estimate_views(self, batch: SceneBatch, given: Posterior, noise: Noise) -> Posterior: ...

    def missed(self, batch: SceneBatch, shown: Rendering) -> Float[Tensor, "B M H W"]: ...

    def description_length(
        self, batch: SceneBatch, posterior: Posterior, latents: Latents, annealing: Annealing
    ) -> Float[Tensor, "B"]: ...

    def background_and_view_kl(self, batch: SceneBatch, posterior: Posterior) -> Float[Tensor, "B"]: ...

    def for_choices(self, posterior: Posterior) -> Posterior: ...

    def canvas(self, batch: SceneBatch, latents: Latents, annealing: Annealing) -> Canvas: ...

    def object_lengths(
        self, posterior: Posterior, annealing: Annealing, views: Int[Tensor, "B"]
    ) -> Float[Tensor, "B K"]: ...


def number_of_views(batch: SceneBatch) -> Int[Tensor, "B"]:
    """Of each scene, the pictures that are none of padding."""
    return batch.view_mask.sum(1)


def most_likely(posterior: Posterior) -> Latents:
    """Means, and the objects that are more likely present than not."""
    present = binary_logit(posterior.logit_kappa >= 0)
    return Latents(posterior.mu_view, posterior.mu_bck, posterior.mu_attr, present)


class Drawn:
    """The objects of a posterior, drawn once, and what any choice of them costs: those alone are then present. `views`:
    the pictures of each scene, where `batch` does not show all of them."""

    def __init__(
        self,
        model: Describer,
        batch: SceneBatch,
        posterior: Posterior,
        annealing: Annealing,
        views: Int[Tensor, "B"] | None = None,
    ) -> None:
        self.model, self.batch = model, batch
        posterior = model.for_choices(posterior)
        latents = most_likely(posterior)
        self.canvas = model.canvas(batch, latents, annealing)
        self.lengths = model.object_lengths(posterior, annealing, number_of_views(batch) if views is None else views)
        self.likely: Bool[Tensor, "B K"] = latents.logit_prs > 0
        self.scenes, self.slots = (torch.arange(size, device=self.likely.device) for size in self.likely.shape)

    def show(self, shown: Bool[Tensor, "B K"]) -> tuple[Rendering, Int[Tensor, "B n"]]:
        """The drawing of these objects alone, and the slots that they come from."""
        slots = chosen_slots(shown)
        return self.canvas.show(self.scenes, slots, shown.gather(1, slots)), slots

    def cost(self, shown: Bool[Tensor, "N K"], scenes: Int[Tensor, "N"]) -> Float[Tensor, "N"]:
        """Reconstruction cost of these scenes, any as often as it is named, with these objects."""
        slots = chosen_slots(shown)
        present, pixels = shown.gather(1, slots), self.canvas.cover[0, :, 0].numel() * slots.shape[1]
        step = max(1, AT_ONCE["cuda" if shown.is_cuda else "cpu"] // pixels)
        parts = [slice(start, start + step) for start in range(0, len(scenes), step)]
        return torch.cat([self.canvas.cost(scenes[part], slots[part], present[part]) for part in parts])

    def length(self, shown: Bool[Tensor, "B K"]) -> Float[Tensor, "B"]:
        """Of the pictures and the objects; background and views cost the same whatever is shown."""
        return self.cost(shown, self.scenes) + torch.where(shown, self.lengths, 0.0).sum(1)

    def pruned(self, shown: Bool[Tensor, "B K"], room: int | None = None) -> Bool[Tensor, "B K"]:
        """Without objects that cost more nats than they save, and without what is then not seen; at most `room`.

        A shadow that no object reaches is worth many nats; but a slot that draws nothing else is no object.
        """
        kept = worth_keeping(shown, self.lengths, self.cost)
        rendering, slots = self.show(kept)
        seen = torch.zeros_like(kept).scatter(1, slots, seen_objects(rendering.perceived, self.batch.view_mask))
        too_many = room is not None and bool((kept.sum(1) > room).any())
        return worth_keeping(kept & seen, self.lengths, self.cost, room) if too_many or (kept & ~seen).any() else kept

    def extended(self, shown: Bool[Tensor, "B K"], free: Bool[Tensor, "B K"], room: int) -> Bool[Tensor, "B K"]:
        """With those of the `free` objects that save more nats than they cost, the one that saves most first, as long
        as there are no more than `room`. Only those are asked that have something to explain (`hopeful`)."""
        missed, asked = self.cost(shown, self.scenes), torch.ones_like(shown[:, :1])
        while True:
            asked = asked & (shown.sum(1, keepdim=True) < room)
            hopeful = free & ~shown & asked & self.hopeful(shown)
            more = changed_costs(shown, hopeful, self.cost)
            saved, slot_of_most = torch.where(hopeful, missed[:, None] - more - self.lengths, -torch.inf).max(1)
            new = F.one_hot(slot_of_most, len(self.slots)).bool() & (saved > 0)[:, None]
            asked = new.any(1, keepdim=True)
            if not asked.any():
                return shown
            shown = shown | new
            missed = torch.where(new, more, 0.0).sum(1) + torch.where(asked[:, 0], 0.0, missed)

    def hopeful(self, shown: Bool[Tensor, "B K"]) -> Bool[Tensor, "B K"]:
        """Objects that are likely there, where the drawing misses at least half of what they cost: what it misses is
        about as much as they can save."""
        missed = self.model.missed(self.batch, self.show(shown)[0])
        return self.likely & ((self.canvas.cover * missed[:, :, None]).sum((1, 3, 4)) > self.lengths / 2)

    def missed_within(self, shown: Bool[Tensor, "B K"]) -> Float[Tensor, "B K"]:
        """What the drawing misses in the seen part of each object."""
        rendering, slots = self.show(shown)
        missed = self.model.missed(self.batch, rendering)
        within = (rendering.perceived[:, :, 1:] * missed[:, :, None]).sum((1, 3, 4))
        return torch.zeros_like(self.lengths).scatter(1, slots, within.to(self.lengths))

    def rearranged(self, shown: Bool[Tensor, "B K"], free: Bool[Tensor, "B K"], room: int) -> Bool[Tensor, "B K"]:
        """A choice of the shown and the `free` objects, at most `room`, with a shorter description; else the same.

        Objects are added and pruned. Then the object that explains its place worst is left out, others are added in its
        stead, and so on: one slot often holds two neighbours, and hides whatever stands for one of them.
        """
        best, length = shown, self.length(shown)

        def take(trial: Bool[Tensor, "B K"]) -> None:
            nonlocal best, length
            trial_length = self.length(trial)
            shorter = trial_length < length
            best, length = torch.where(shorter[:, None], trial, best), torch.where(shorter, trial_length, length)

        take(self.pruned(self.extended(shown, free, room)))
        tried = torch.zeros_like(shown)
        for _ in range(SWAPS):
            missed, slot = torch.where(best & ~tried, self.missed_within(best), -torch.inf).max(1)
            asked = missed > self.lengths.gather(1, slot[:, None]).squeeze(1)
            if not asked.any():
                break
            worst = F.one_hot(slot, len(self.slots)).bool() & asked[:, None]
            tried = tried | worst
            take(self.pruned(self.extended(best & ~worst, (free | shown) & ~worst & asked[:, None], room)))
        return best


def chosen_slots(shown: Bool[Tensor, "N K"]) -> Int[Tensor, "N n"]:
    """The slots of what is shown, in their order; with fewer than others, then some of what is not."""
    return shown.long().argsort(dim=1, descending=True, stable=True)[:, : max(1, int(shown.sum(1).max()))]


def seen_objects(perceived: Float[Tensor, "B M L H W"], view_mask: Bool[Tensor, "B M"]) -> Bool[Tensor, "B K"]:
    """Objects that have more of some pixel of a real view than any other layer."""
    B, L = len(perceived), perceived.shape[2]
    largest = torch.where(view_mask[:, :, None, None], perceived.argmax(2), 0).flatten(1)
    seen = torch.zeros(B, L, dtype=torch.bool, device=perceived.device).scatter_(1, largest, True)
    return seen[:, 1:]


ReconstructionCost = Callable[[Bool[Tensor, "N K"], Int[Tensor, "N"]], Float[Tensor, "N"]]
"""Of scenes, any as often as it is named, each with a choice of its objects."""


def changed_costs(
    shown: Bool[Tensor, "B K"], asked: Bool[Tensor, "B K"], cost: ReconstructionCost
) -> Float[Tensor, "B K"]:
    """What pictures cost if one of the objects asked about comes, or goes if it is shown; infinite where none is."""
    scenes, slots = asked.nonzero().unbind(1)
    costs = torch.full(shown.shape, torch.inf, device=shown.device)
    if len(scenes):
        changed = shown[scenes] ^ F.one_hot(slots, shown.shape[1]).bool()
        found = cost(changed, scenes)
        costs = costs.to(found)
        costs[scenes, slots] = found
    return costs


def worth_keeping(
    present: Bool[Tensor, "B K"], lengths: Float[Tensor, "B K"], cost: ReconstructionCost, room: int | None = None
) -> Bool[Tensor, "B K"]:
    """Present objects, at most `room`, without those whose length is more than the pictures lose without them.

    Of each scene the object that saves least goes first, and the others are asked again: of two copies, one stays.
    """
    room = present.shape[1] if room is None else room
    scenes = torch.arange(len(present), device=present.device)
    missed, asked = cost(present, scenes), torch.ones_like(present[:, :1])
    while True:
        without = changed_costs(present, present & asked, cost)
        worth = torch.where(present & asked, without - missed[:, None] - lengths, torch.inf)
        least, slot_of_least = worth.min(1)
        goes = (least < 0) | (present.sum(1) > room)
        surplus = F.one_hot(slot_of_least, present.shape[1]).bool() & goes[:, None]
        asked = surplus.any(1, keepdim=True)
        if not asked.any():
            return present
        present = present & ~surplus
        missed = torch.where(surplus, without, 0.0).sum(1) + torch.where(asked[:, 0], 0.0, missed)
