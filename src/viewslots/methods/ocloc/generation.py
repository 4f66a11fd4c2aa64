"""The generative model: the f networks, from latents to layers, and their priors."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from viewslots.methods.distributions import widen
from viewslots.methods.layers import MultiLayerPerceptron
from viewslots.methods.noise import Sampler
from viewslots.methods.ocloc.boxes import DRAWN, NUMBERS, placed, told_boxes
from viewslots.methods.ocloc.variables import Decoded, Latents


def codes_of_layers(
    z_view: Float[Tensor, "B M *slots Dview"], K: int
) -> tuple[Float[Tensor, "B M Dview"], Float[Tensor, "B M K Dview"]]:
    """The view code that each layer reads: one for all layers, or (per-view baseline) that of its own slot."""
    if z_view.dim() == 4:
        return z_view[:, :, 0], z_view[:, :, 1:]
    return z_view, z_view[:, :, None].expand(-1, -1, K, -1)


class Generation(nn.Module):
    """f_shp and f_apc (one network), f_bck, f_ord; f_box where objects are drawn in boxes, f_det where they have
    details."""

    def __init__(
        self,
        *,
        object_decoder: nn.Module,
        background_decoder: nn.Module,
        detail_decoder: nn.Module | None,
        view_dim: int,
        background_dim: int,
        attr_dim: int,
        details: int,
        hidden: int,
        channels: int,
        boxes: bool,
    ) -> None:
        super().__init__()
        self.channels = channels
        self.view_dim, self.background_dim = view_dim, background_dim
        self.attr_dim, self.code_dim = attr_dim, attr_dim + details
        self.f_shp_apc = object_decoder
        self.f_bck = background_decoder
        self.f_det = detail_decoder
        # Paper: one output. The authors' runs have two more, the centre of the compactness noise.
        self.f_ord = MultiLayerPerceptron(view_dim + attr_dim, (hidden, hidden), 3)
        self.f_box = MultiLayerPerceptron(view_dim + attr_dim, (hidden, hidden), NUMBERS) if boxes else None

    @torch.no_grad()
    def start_channel(self, channel: int, value: float) -> None:
        """Where an output of the object decoder starts."""
        last = self.last_layer()
        assert last.bias is not None
        last.bias.view(self.channels, -1)[channel] = value

    def last_layer(self) -> nn.Conv2d:
        """Of the object decoder. For each channel it may have several outputs in a row: sub-pixels."""
        return last_convolution(self.f_shp_apc)

    def forward(self, latents: Latents) -> Decoded:
        """f_bck, f_shp, f_apc and f_ord of section 'Generative Model'; what was drawn in boxes is in its place. Codes
        may come without their details; objects are then drawn without them."""
        K, M = latents.z_attr.shape[1], latents.z_view.shape[1]
        view_bck, view_obj = codes_of_layers(latents.z_view, K)
        code_bck = torch.cat([view_bck, latents.z_bck[:, None].expand(-1, M, -1)], -1)
        code = latents.z_attr[:, None].expand(-1, M, -1, -1)
        attr, details = code[..., : self.attr_dim], code[..., self.attr_dim :]
        assert code.shape[-1] in (self.attr_dim, self.code_dim), f"codes of {code.shape[-1]}, not {self.code_dim}"
        code_obj = torch.cat([view_obj, attr], -1)
        order, centre = torch.split(widen(self.f_ord(code_obj)), [1, 2], -1)
        background, objects = self.f_bck(code_bck.flatten(0, 1)), self.f_shp_apc(code_obj.flatten(0, 2))
        if details.shape[-1]:
            drawn = objects[:, :DRAWN] + self.detail(view_obj, details).flatten(0, 2)
            objects = torch.cat([drawn, objects[:, DRAWN:]], 1)
        boxes = None
        if self.f_box is not None:
            height, width = background.shape[-2:]
            boxes = told_boxes(self.f_box(code_obj), (height, width))
            objects = self.place(objects, boxes.flatten(0, 2), (height, width))
        return Decoded(
            background=background, objects=objects, order=order.squeeze(-1), centre=centre.tanh(), boxes=boxes
        )

    def place(
        self, drawn: Float[Tensor, "I channels h w"], boxes: Float[Tensor, "I 4"], size: tuple[int, int]
    ) -> Float[Tensor, "I channels H W"]:
        return placed(drawn, boxes, size)

    def detail(
        self, view: Float[Tensor, "B M K Dview"], details: Float[Tensor, "B M K Ddet"]
    ) -> Float[Tensor, "B M K 4 h w"]:
        """What details add to shapes and colours, as they are drawn: f_det less what it makes of the prior's mean. So
        an object of which none are known stays as it is."""
        assert self.f_det is not None
        known = torch.cat([view, details], -1)
        unknown = torch.cat([view[:, :, :1], torch.zeros_like(details[:, :, :1])], -1)
        drawn = widen(self.f_det(torch.cat([known, unknown], 2).flatten(0, 2)).unflatten(0, (*known.shape[:2], -1)))
        return drawn[:, :, :-1] - drawn[:, :, -1:]

    def prior(self, B: int, M: int, K: int, alpha: float, source: Sampler) -> Latents:
        """z_view, z_attr ~ N(0, I), rho ~ Beta(alpha / K, 1), z_prs ~ Ber(rho): lines 1, 2 of the generative model."""
        rho = source.uniform(B, K) ** (K / alpha)
        present = source.uniform(B, K) < rho
        return Latents(
            z_view=source.normal(B, M, self.view_dim),
            z_bck=source.normal(B, self.background_dim),
            z_attr=source.normal(B, K, self.code_dim),
            logit_prs=binary_logit(present),
        )


def last_convolution(decoder: nn.Module) -> nn.Conv2d:
    return [module for module in decoder.modules() if isinstance(module, nn.Conv2d)][-1]


def binary_logit(value: Tensor) -> Tensor:
    """Log-odds of a value that is certain."""
    return torch.where(value, torch.inf, -torch.inf)
