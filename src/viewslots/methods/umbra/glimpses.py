"""A second look: every layer sees, in the box where it is drawn, what the drawing misses, and changes its code.

Algorithm 1 looks at whole pictures and never at its own drawing, which leaves hundreds of nats to gradient steps on the
codes of each scene. A glimpse learns those steps: one drawing, at most one gradient of it, and a small network.
"""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from viewslots.methods.distributions import full_precision, widen
from viewslots.methods.layers import MultiLayerPerceptron
from viewslots.methods.ocloc.boxes import boxes_around
from viewslots.methods.ocloc.inference import mean_over_views
from viewslots.methods.ocloc.networks import initialise
from viewslots.methods.ocloc.variables import Posterior, Rendering
from viewslots.methods.spatial import crop
from viewslots.methods.umbra.config import UmbraConfig
from viewslots.types import SceneBatch

SEEN = 11
"""Channels of a glimpse: the picture and what the drawing misses of it, three each; of the layer its colours, complete
shape and seen part."""


@dataclass(frozen=True)
class Drawing:
    """How the means of a posterior are drawn, and the slopes of the description of the pictures along them."""

    shown: Rendering
    slope_view: Float[Tensor, "B M Dview_or_0"]
    """As `slope` has them; nothing where they are not asked for."""
    slope_bck: Float[Tensor, "B Dbck_or_0"]
    slope_attr: Float[Tensor, "B K Dattr_or_0"]


DETAIL_LOG_SIGMA = -2.0
"""Of details. Were it told too, it would grow to that of the prior before anything reads them."""


def slope(gradient: Tensor) -> Tensor:
    """A gradient in nats, of which a code may have thousands, as numbers of about the size of 1."""
    return gradient.asinh() / 4


class Glimpses(nn.Module):
    """One round; all rounds share its weights. As it starts, it changes nothing but details, which it tells anew every
    time."""

    def __init__(self, config: UmbraConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.size, hidden = config.glimpse_size, config.hidden
        self.slopes, self.details = config.glimpse_slopes, config.details
        given = 2 if config.glimpse_slopes else 1
        self.sizes = [config.attr_dim, config.attr_dim, 2, 1]
        layers: list[nn.Module] = []
        before, side = SEEN, self.size
        for channels in config.glimpse_channels:
            layers += [nn.Conv2d(before, channels, 3, stride=2, padding=1), nn.ReLU()]
            before, side = channels, -(-side // 2)
        self.features = nn.Sequential(*layers, nn.Flatten(), nn.Linear(before * side**2, hidden))
        self.of_place = nn.Linear(given * config.view_dim + 4, hidden)
        self.of_background = nn.Linear((given + 1) * config.background_dim, hidden, bias=False)
        self.of_object = nn.Linear((given + 1) * config.code_dim + 1, hidden, bias=False)
        self.both = nn.Sequential(nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.to_view = MultiLayerPerceptron(hidden, (hidden,), 2 * config.view_dim)
        self.to_background = MultiLayerPerceptron(hidden, (hidden,), 2 * config.background_dim)
        self.to_object = MultiLayerPerceptron(hidden, (hidden,), sum(self.sizes))
        known_view = config.view_dim if config.details_by_view else 0
        self.to_details = DetailHead(hidden, known_view, config.details) if config.details else None
        initialise(self, generator)
        with torch.no_grad():
            for head in (self.to_view, self.to_background, self.to_object):
                head.last.weight.zero_()

    def forward(self, batch: SceneBatch, posterior: Posterior, drawing: Drawing, sigma_x: float) -> Posterior:
        """`drawing` is that of `posterior`. Gradients reach the posterior as if nothing had been looked at: what is
        seen is an input."""
        boxes = boxes_of(drawing.shown.logit_shp.sigmoid())
        seen = self.seen(layer_maps(batch.image, drawing.shown, sigma_x), boxes)
        noticed = self.noticed(seen, boxes, posterior, drawing)
        scene = mean_over_views(noticed, batch.view_mask)
        mu_view, log_sigma_view = widen(self.to_view(over_layers(noticed, posterior.kappa.detach()))).chunk(2, -1)
        mu_bck, log_sigma_bck = widen(self.to_background(scene[:, 0])).chunk(2, -1)
        mu_attr, log_sigma_attr, tau, kappa = torch.split(widen(self.to_object(scene[:, 1:])), self.sizes, -1)
        mu_attr = posterior.mu_attr[..., : self.sizes[0]] + mu_attr
        log_sigma_attr = posterior.log_sigma_attr[..., : self.sizes[1]] + log_sigma_attr
        if self.to_details is not None:
            mu, log_sigma = self.to_details(seen[:, :, 1:], posterior.mu_view.detach(), batch.view_mask)
            mu_attr, log_sigma_attr = torch.cat([mu_attr, mu], -1), torch.cat([log_sigma_attr, log_sigma], -1)
        return replace(
            posterior,
            mu_view=posterior.mu_view + mu_view,
            log_sigma_view=posterior.log_sigma_view + log_sigma_view,
            mu_bck=posterior.mu_bck + mu_bck,
            log_sigma_bck=posterior.log_sigma_bck + log_sigma_bck,
            mu_attr=mu_attr,
            log_sigma_attr=log_sigma_attr,
            tau=posterior.tau * tau.exp(),
            logit_kappa=posterior.logit_kappa + kappa.squeeze(-1),
        )

    def knowing_other_details(self, weight: Float[Tensor, "D inputs"], details: int) -> Float[Tensor, "D own"]:
        """A weight of `of_object` for codes with so many details, for those with others: of these it knows nothing yet.
        One of another size stays as it is, and is refused."""
        attr = self.sizes[0]
        codes = [True, True, False, *([True] if self.slopes else [])]  # means, deviations; presence; slopes
        widths = [attr + details if code else 1 for code in codes]
        if weight.shape != (self.of_object.out_features, sum(widths)):
            return weight
        parts = zip(torch.split(weight, widths, 1), codes, strict=True)
        return torch.cat([F.pad(part[:, :attr], (0, self.details)) if code else part for part, code in parts], 1)

    def seen(self, maps: Float[Tensor, "B M L C H W"], boxes: Float[Tensor, "B M L 4"]) -> Float[Tensor, "B M L D"]:
        """Features of each layer's glimpse of each view."""
        glimpses = glimpses_of(maps, boxes, self.size)
        return widen(self.features(glimpses.flatten(0, 2)).unflatten(0, boxes.shape[:3]))

    def noticed(
        self,
        seen: Float[Tensor, "B M L D"],
        boxes: Float[Tensor, "B M L 4"],
        posterior: Posterior,
        drawing: Drawing,
    ) -> Float[Tensor, "B M L D"]:
        """What each layer makes of it, knowing what the posterior says."""
        view = torch.cat([posterior.mu_view, drawing.slope_view], -1)[:, :, None].expand(-1, -1, boxes.shape[2], -1)
        place = torch.cat([view, boxes], -1).detach()
        background = torch.cat([posterior.mu_bck, posterior.log_sigma_bck, drawing.slope_bck], -1).detach()
        objects = [posterior.mu_attr, posterior.log_sigma_attr, posterior.logit_kappa[..., None], drawing.slope_attr]
        codes = torch.cat([self.of_background(background)[:, None], self.of_object(torch.cat(objects, -1).detach())], 1)
        return widen(self.both(seen + widen(self.of_place(place)) + widen(codes)[:, None]))


class DetailHead(nn.Module):
    """Details of an object from what is seen of it, not from its code, which has place, size and colour in it.
    Normalised, so that they say something from the first step on.

    With a `view_dim` each glimpse is first read together with the code of its viewpoint."""

    def __init__(self, inputs: int, view_dim: int, details: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(inputs)
        if view_dim:
            self.norm_of_each = nn.LayerNorm(inputs)
        self.of_view = MultiLayerPerceptron(inputs + view_dim, (inputs,), inputs) if view_dim else None
        self.means = MultiLayerPerceptron(inputs, (inputs,), details)

    def forward(
        self, seen: Float[Tensor, "B M K D"], view: Float[Tensor, "B M Dview"], view_mask: Bool[Tensor, "B M"]
    ) -> tuple[Float[Tensor, "B K Ddet"], Float[Tensor, "B K Ddet"]]:
        """Means and log deviations."""
        if self.of_view is not None:
            known = view[:, :, None].expand(*seen.shape[:3], -1)
            seen = widen(self.of_view(torch.cat([self.norm_of_each(seen), known], -1)))
        mu = widen(self.means(self.norm(mean_over_views(seen, view_mask))))
        return mu, torch.full_like(mu, DETAIL_LOG_SIGMA)


@full_precision
def over_layers(noticed: Float[Tensor, "B M L D"], kappa: Float[Tensor, "B K"]) -> Float[Tensor, "B M D"]:
    """The mean over the background and the objects that are there: empty slots have no say about the viewpoint."""
    weights = torch.cat([torch.ones_like(kappa[:, :1]), kappa], 1)
    weights = (weights / weights.sum(1, keepdim=True))[:, None, :, None]
    return (noticed * weights).sum(2)


def boxes_of(shapes: Float[Tensor, "B M K H W"]) -> Float[Tensor, "B M L 4"]:
    """The box around each shape; of the background, the picture."""
    objects = boxes_around(shapes)
    half = torch.ones_like(objects[:, :, :1, :2])  # made on the device: a graph copies nothing from the host
    return torch.cat([torch.cat([half, torch.zeros_like(half)], -1), objects], 2)


@full_precision
def layer_maps(
    image: Float[Tensor, "B M 3 H W"], shown: Rendering, sigma_x: float
) -> Float[Tensor, "B M L channels H W"]:
    """What there is to see of every layer, SEEN channels of about the size of 1."""
    missed = (image - shown.reconstruction) / (2 * sigma_x)
    L = shown.perceived.shape[2]
    common = torch.cat([2 * image - 1, missed], 2)[:, :, None].expand(-1, -1, L, -1, -1, -1)
    colours = 2 * torch.cat([shown.background[:, :, None], shown.appearance], 2) - 1
    shapes = torch.cat([torch.ones_like(shown.perceived[:, :, :1]), shown.logit_shp.sigmoid()], 2)
    return torch.cat([common, colours, shapes[:, :, :, None], shown.perceived[:, :, :, None]], 3).detach()


def glimpses_of(
    maps: Float[Tensor, "B M L C H W"], boxes: Float[Tensor, "B M L 4"], size: int
) -> Float[Tensor, "B M L C size size"]:
    flat = boxes.flatten(0, 2)
    return crop(maps.flatten(0, 2), flat[:, :2], flat[:, 2:], size).view(*maps.shape[:4], size, size)
