"""The variables of the model, with the paper's names: what its parts hand on to each other."""

import functools
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Noise:
    """Standard noise for every variable that Algorithm 1 and the generative model draw."""

    y_view: Float[Tensor, "B M *slots Dvw"]
    """Normal, line 3."""
    y_attr: Float[Tensor, "B L Dat"]
    """Normal, line 4."""
    background: Float[Tensor, "B L"]
    """Gumbel, line 16: k* is the arg max of log pi + noise."""
    z_view: Float[Tensor, "B M *slots Dview"]
    """Normal."""
    z_bck: Float[Tensor, "B Dbck"]
    """Normal."""
    z_attr: Float[Tensor, "B K Dattr"]
    """Normal."""
    z_prs: Float[Tensor, "B K"]
    """Logistic."""
    z_shp: Float[Tensor, "B M K H_or_0 W_or_0"]
    """Logistic; nothing where a model draws no shapes."""
    appearance: Float[Tensor, "B M K 3 H W"]
    """Normal: the compactness noise."""


@dataclass(frozen=True)
class Posterior:
    """Parameters of q(Omega | x), the answer of Algorithm 1, with the intermediate variables that they come from.

    `*slots` is empty for OCLOC; the per-view baseline has one view code for each layer there.
    """

    mu_view: Float[Tensor, "B M *slots Dview"]
    log_sigma_view: Float[Tensor, "B M *slots Dview"]
    mu_bck: Float[Tensor, "B Dbck"]
    """z_attr of the background, k = 0."""
    log_sigma_bck: Float[Tensor, "B Dbck"]
    mu_attr: Float[Tensor, "B K Dattr"]
    """z_attr of the objects, k = 1..K."""
    log_sigma_attr: Float[Tensor, "B K Dattr"]
    tau: Float[Tensor, "B K 2"]
    """Parameters of the beta distribution of rho."""
    logit_kappa: Float[Tensor, "B K"]
    """Log-odds of the presence probability kappa."""
    log_pi: Float[Tensor, "B slots_of_inference"]
    """Log-probability of every slot, before rearrangement, to be the background. A search may leave out objects or
    add some; this stays as inference had it.
    """
    background_index: Int[Tensor, "B"]
    """k*, the slot that was taken as background."""
    y_view: Float[Tensor, "B M *slots Dvw"]
    y_attr: Float[Tensor, "B L Dat"]
    """After rearrangement: the background first."""

    @property
    def kappa(self) -> Float[Tensor, "B K"]:
        return self.logit_kappa.sigmoid()


@dataclass(frozen=True)
class Latents:
    """One sample of the latent variables. z_shp, which needs a decoder, is drawn while rendering."""

    z_view: Float[Tensor, "B M *slots Dview"]
    z_bck: Float[Tensor, "B Dbck"]
    z_attr: Float[Tensor, "B K Dattr"]
    logit_prs: Float[Tensor, "B K"]
    """Log-odds of the (relaxed) presence; plus or minus infinity for a binary one."""

    @property
    def z_prs(self) -> Float[Tensor, "B K"]:
        return self.logit_prs.sigmoid()

    def of_slots(self, scenes: Int[Tensor, "N"], slots: Int[Tensor, "N n"], present: Bool[Tensor, "N n"]) -> "Latents":
        """These scenes, any as often as it is named, each with these of its objects, which are there or not."""
        certain = torch.where(present, torch.inf, -torch.inf)
        return Latents(self.z_view[scenes], self.z_bck[scenes], self.z_attr[scenes[:, None], slots], certain)


@dataclass(frozen=True)
class Rendering:
    """What the generative model shows for one sample of the latents."""

    reconstruction: Float[Tensor, "B M 3 H W"]
    """Mean of the likelihood: the sum over layers of perceived shape times appearance."""
    perceived: Float[Tensor, "B M L H W"]
    """Perceived shapes s, background first; they sum to one."""
    logit_shp: Float[Tensor, "B M K H W"]
    """Log-odds of the complete shapes."""
    order: Float[Tensor, "B M K"]
    """Output of f_ord, lambda log o: larger is nearer."""
    appearance: Float[Tensor, "B M K 3 H W"]
    """Complete appearances a of the objects, sRGB, not clamped, free of compactness noise."""
    background: Float[Tensor, "B M 3 H W"]
    """Appearance of the background layer."""


@dataclass(frozen=True)
class ElboTerms:
    """The loss of the paper, scene by scene and unweighted, and the two terms that teach the background choice."""

    constant: Float[Tensor, "B"]
    nll: Float[Tensor, "B"]
    view: Float[Tensor, "B"]
    attr: Float[Tensor, "B"]
    """Background and objects, k = 0..K."""
    attr_background: Float[Tensor, "B"]
    """The part of `attr` that belongs to k = 0, which may carry its own weight."""
    rho: Float[Tensor, "B"]
    prs: Float[Tensor, "B"]
    policy: Float[Tensor, "B"]
    """NVIL: minus the learning signal times log pi(k*); its gradient counts, not its value."""
    baseline: Float[Tensor, "B"]
    """NVIL: minus the learning signal times the learned baseline."""
    costs: Float[Tensor, "B"]
    """What a model of ours minimises beyond its bound, zero in the paper's: weighted prices, and distances of boxes."""

    @property
    def loss(self) -> Float[Tensor, "B"]:
        """L, the negative evidence lower bound, and the costs beyond it."""
        return functools.reduce(torch.add, (getattr(self, name) for name in LOSS_TERMS))


LOSS_TERMS = ("constant", "nll", "view", "attr", "rho", "prs", "costs")
"""Of ElboTerms: those whose sum is the loss."""


@dataclass(frozen=True)
class Decoded:
    """What the decoders say, as they say it."""

    background: Float[Tensor, "BM 3 H W"]
    """y of the colours."""
    objects: Float[Tensor, "BMK channels H W"]
    """Log-odds of the shape, y of the colours, then whatever else the image model wants."""
    order: Float[Tensor, "B M K"]
    centre: Float[Tensor, "B M K 2"]
    boxes: Float[Tensor, "B M K 4"] | None = None
    """In which objects were drawn, if not on the whole picture."""


@dataclass(frozen=True)
class Layers:
    """What the decoders say of every view and layer, before occlusion."""

    background: Float[Tensor, "B M 3 H W"]
    appearance: Float[Tensor, "B M K 3 H W"]
    logit_shp: Float[Tensor, "B M K H W"]
    order: Float[Tensor, "B M K"]
    centre: Float[Tensor, "B M K 2"]
    """Of the compactness noise; x and y in [-1, 1]."""
    logit_shadow: Float[Tensor, "B M K H W"] | None = None
    """Log-odds of each object's shadow on the background, where an image model has shadows."""

    def of_slots(self, scenes: Int[Tensor, "N"], slots: Int[Tensor, "N n"]) -> "Layers":
        """These scenes, any as often as it is named, each with these of its objects."""

        def chosen(value: Tensor) -> Tensor:
            return objects_of(value, scenes, slots)

        return Layers(
            background=self.background[scenes],
            appearance=chosen(self.appearance),
            logit_shp=chosen(self.logit_shp),
            order=chosen(self.order),
            centre=chosen(self.centre),
            logit_shadow=None if self.logit_shadow is None else chosen(self.logit_shadow),
        )


def objects_of(
    values: Float[Tensor, "B M K *rest"], scenes: Int[Tensor, "N"], slots: Int[Tensor, "N n"]
) -> Float[Tensor, "N M n *rest"]:
    """Of these scenes, any as often as it is named, the values of these objects in all views."""
    return values.transpose(1, 2)[scenes[:, None], slots].transpose(1, 2)
