"""Careful answers, ours: several starts, and no object that is not worth its own description.

The paper answers with one run of the inference and a sample of every presence. Which slots find which objects depends
on the start, and nearly all objects that it counts too many are second copies of one that another slot holds.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

LEFT_OUT = -30.0
"""Log-odds of the presence of an object that was left out."""


@dataclass(frozen=True)
class Care:
    """How an answer is found. The defaults are the paper's."""

    starts: int = 1
    """Random starts of the inference, of which the one with the shortest description is the answer."""
    thrifty: bool = False
    """Leave out objects that save less of the description than they take; present or not is no sample then."""


Misfit = Callable[[Bool[Tensor, "B K"]], Float[Tensor, "B"]]
"""Nats by which pictures are missed with these objects present."""


def worthwhile(present: Bool[Tensor, "B K"], prices: Float[Tensor, "B K"], misfit: Misfit) -> Bool[Tensor, "B K"]:
    """Present objects, without those whose price is higher than what the pictures lose without them.

    Of each scene the least worthwhile goes first, and the others are asked again: of two copies, one stays.
    """
    missed = misfit(present)
    slots = torch.arange(present.shape[1], device=present.device)
    while True:
        without = torch.full_like(prices, torch.inf)
        for slot in present.any(0).nonzero().flatten().tolist():
            without[:, slot] = misfit(present & (slots != slot))
        worth = torch.where(present, without - missed[:, None] - prices, torch.inf)
        least, slot_of_least = worth.min(1)
        surplus = F.one_hot(slot_of_least, len(slots)).bool() & (least < 0)[:, None]
        if not surplus.any():
            return present
        present = present & ~surplus
        missed = torch.where(surplus, without, 0.0).sum(1) + torch.where(surplus.any(1), 0.0, missed)
