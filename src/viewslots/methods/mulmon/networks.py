"""The networks of MulMON, and where their weights start. Cameras, latents and states stay in full precision: they are
small, and everything depends on them."""

import itertools
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from viewslots.methods.distributions import widen
from viewslots.methods.layers import MultiLayerPerceptron

CAMERA = 5
"""Numbers of a camera: cosine and sine of azimuth and of elevation, distance."""
IMAGE_INPUTS = 17
"""Channels of what the refinement network looks at (refinement.py)."""

State = tuple[Float[Tensor, "I S"], Float[Tensor, "I S"]]
"""Output and memory of an LSTM."""
Decode = Callable[[Float[Tensor, "I D"]], Float[Tensor, "I 4 H W"]]


def pixel_grid(size: int) -> Float[Tensor, "2 size size"]:
    """x and y of every pixel, in [-1, 1]."""
    y, x = torch.meshgrid(*[torch.linspace(-1, 1, size)] * 2, indexing="ij")
    return torch.stack([x, y])


class Projector(nn.Module):
    """What a slot is from one viewpoint."""

    def __init__(self, latent_dim: int, view_hidden: int, hidden: int) -> None:
        super().__init__()
        self.view = MultiLayerPerceptron(CAMERA, [view_hidden], CAMERA)
        self.project = MultiLayerPerceptron(latent_dim + CAMERA, [hidden], latent_dim)

    def viewpoint(self, camera: Float[Tensor, "B M 5"]) -> Float[Tensor, "B M 5"]:
        """The code of a camera: the same for all latents, so it is made once a pass."""
        with torch.autocast(camera.device.type, enabled=False):
            return self.view(camera)

    def forward(self, latent: Float[Tensor, "B L D"], viewpoint: Float[Tensor, "B 5"]) -> Float[Tensor, "B L D"]:
        with torch.autocast(latent.device.type, enabled=False):
            code = viewpoint[:, None].expand(-1, latent.shape[1], -1)
            return self.project(torch.cat([latent, code], -1))


class Decoder(nn.Module):
    """Spatial broadcast: a code and coordinates on a map just large enough for convolutions without padding.

    The answer is a colour, not squashed, and the logit of a mask.
    """

    grid: Tensor

    def __init__(self, latent_dim: int, channels: Sequence[int], image_size: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise([latent_dim + 2, *channels]):
            layers += [nn.Conv2d(before, after, 3), nn.ReLU()]
        self.convolutions = nn.Sequential(*layers, nn.Conv2d(channels[-1], 4, 1))
        self.register_buffer("grid", pixel_grid(image_size + 2 * len(channels)), persistent=False)

    def ready(self) -> Decode:
        """The decoder for one pass, in which it is asked many times: a faster one prepares its weights here."""
        return self

    def forward(self, code: Float[Tensor, "I D"]) -> Float[Tensor, "I 4 H W"]:
        grid = self.grid.expand(len(code), -1, -1, -1)
        maps = code[:, :, None, None].expand(-1, -1, *grid.shape[-2:])
        return self.convolutions(torch.cat([maps, grid], 1))


class RefinementNetwork(nn.Module):
    """Looks at a slot's picture, its posterior and their gradients, and says how to change the posterior."""

    def __init__(
        self,
        latent_dim: int,
        channels: Sequence[int],
        last_size: int,
        hidden: int,
        features: int,
        state_dim: int,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise([IMAGE_INPUTS, *channels]):
            layers += [nn.Conv2d(before, after, 3, 2), nn.ReLU()]
        self.convolutions = nn.Sequential(*layers)
        self.features = MultiLayerPerceptron(channels[-1] * last_size**2, [hidden], features)
        self.recurrent = nn.LSTMCell(features + 4 * latent_dim, state_dim)
        self.update = nn.Linear(state_dim, 2 * latent_dim)

    def start(self, like: Float[Tensor, "B L P"]) -> State:
        """The state before a view: zeros, whatever views came before."""
        count, size = like.shape[0] * like.shape[1], self.recurrent.hidden_size
        return like.new_zeros(count, size), like.new_zeros(count, size)

    def forward(
        self, image_inputs: Float[Tensor, "B L 17 H W"], vector_inputs: Float[Tensor, "B L V"], state: State
    ) -> tuple[Float[Tensor, "B L P"], State]:
        maps = self.convolutions(image_inputs.flatten(0, 1))
        update, state = self.remember(maps.flatten(1), vector_inputs.flatten(0, 1), *state)
        return update.view(*image_inputs.shape[:2], -1), state

    def remember(
        self,
        maps: Float[Tensor, "I F"],
        vector: Float[Tensor, "I V"],
        output: Float[Tensor, "I S"],
        memory: Float[Tensor, "I S"],
    ) -> tuple[Float[Tensor, "I P"], State]:
        with torch.autocast(maps.device.type, enabled=False):
            seen = torch.cat([self.features(widen(maps)), vector], -1)
            state = self.recurrent(seen, (output, memory))
            return self.update(state[0]), state
