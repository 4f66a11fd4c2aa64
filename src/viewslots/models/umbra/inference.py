"""Algorithm 1 with a slot that is the background from the start."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from viewslots.models.ocloc.inference import Inference

START_LOG_SIGMA = -2.0
"""The background's slot begins nearly at the same place every time, so that it learns to be the same thing."""


class OwnBackground(Inference):
    """Slot 0 starts from a mean of its own (line 4) and is the background: nothing is chosen (lines 15 and 16).

    In the paper any slot may be drawn as the background. While that choice is a lottery, every slot learns to describe
    the whole picture, and NVIL has to teach it out of them.
    """

    def __init__(self, **sizes: Any) -> None:
        super().__init__(**sizes)
        del self.g_sel
        attr = self.slot_dims[1]
        self.mu_bck = nn.Parameter(torch.zeros(attr))
        self.log_sigma_bck = nn.Parameter(torch.full((attr,), START_LOG_SIGMA))

    def start_selection(self, gain: float) -> None:
        """There is none."""

    def start_attr(self, noise: Float[Tensor, "B L Dat"]) -> Float[Tensor, "B L Dat"]:
        objects = super().start_attr(noise[:, 1:])
        return torch.cat([self.mu_bck + self.log_sigma_bck.exp() * noise[:, :1], objects], 1)

    def choose_background(
        self, y_attr: Float[Tensor, "B L Dat"], noise: Float[Tensor, "B L"], background_index: Int[Tensor, "B"] | None
    ) -> tuple[Float[Tensor, "B L"], Int[Tensor, "B"]]:
        assert background_index is None, "nothing is chosen here"
        log_pi = torch.full_like(noise, -torch.inf)
        log_pi[:, 0] = 0.0
        return log_pi, torch.zeros(len(y_attr), dtype=torch.long, device=y_attr.device)
