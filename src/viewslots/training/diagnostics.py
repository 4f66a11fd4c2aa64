"""Is it learning, or has it collapsed? Numbers per validation, and warnings in plain words."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from viewslots.types import Decomposition

SHARED = 0.9
"""Entropy of the masks, as a share of its largest value, above which no slot has anything of its own."""
PATIENCE = 0.2
"""Share of a run after which objects should have appeared."""
ABSENT = 0.02
"""Objects a scene below which there are none to speak of."""


@dataclass(frozen=True)
class Diagnostics:
    slots_used: float
    """Object slots that win a pixel in some view, a scene."""
    background_choice: tuple[float, ...]
    """How often each of the L slots, before rearrangement, is the likeliest background."""
    background_share: float
    """Share of pixels that the background wins."""
    mask_entropy: float
    """Mean over the pixels of the entropy of the L masks, in nats."""
    object_entropy: float
    """The same among the K object masks, where and as far as objects are."""
    absent: float
    """Share of presences below 0.5."""

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "background_choice"} | {
            f"background_choice_{index}": share for index, share in enumerate(self.background_choice)
        }


@torch.no_grad()
def diagnose(answer: Decomposition, log_pi: Float[Tensor, "S L"]) -> Diagnostics:
    """`log_pi` as in Posterior: of scenes, or of views where each has slots of its own."""
    masks = answer.layer_masks
    L = masks.shape[2]
    winner = masks.argmax(2)
    won = torch.stack([(winner == layer).flatten(1).any(1) for layer in range(1, L)], 1)
    choice = torch.bincount(log_pi.argmax(1), minlength=L) / len(log_pi)
    assert answer.presence is not None
    return Diagnostics(
        slots_used=won.sum(1).float().mean().item(),
        background_choice=tuple(choice.tolist()),
        background_share=(winner == 0).float().mean().item(),
        mask_entropy=entropy(masks).mean().item(),
        object_entropy=object_entropy(masks),
        absent=(answer.presence < 0.5).float().mean().item(),
    )


def entropy(shares: Float[Tensor, "B M L H W"]) -> Float[Tensor, "B M H W"]:
    return torch.special.entr(shares).sum(2)


def object_entropy(masks: Float[Tensor, "B M L H W"]) -> float:
    """Weighted by how much of a pixel belongs to objects at all."""
    objects = masks[:, :, 1:]
    mass = objects.sum(2)
    within = entropy(objects / mass.clamp(min=1e-6)[:, :, None])
    return float((mass * within).sum() / mass.sum().clamp(min=1e-6))


def warnings(found: Diagnostics, step: int, steps: int) -> dict[str, str]:
    """What a person should know, by kind, a sentence each; nothing before the share PATIENCE of the run."""
    if step < PATIENCE * steps:
        return {}
    L, said = len(found.background_choice), {}
    if found.slots_used < ABSENT:
        said["no objects"] = (
            f"no objects by step {step}: the background takes every pixel; try another --seed or more --steps"
        )
    together = L > 2 and found.object_entropy > SHARED * math.log(L - 1) and found.slots_used >= ABSENT
    if together or found.mask_entropy > SHARED * math.log(L):
        said["shared"] = (
            f"all slots share everything at step {step}: none has an object of its own; try another --seed or a lower "
            "--learning-rate"
        )
    return said
