"""Algorithm 1: from pictures to the parameters of q(Omega | x)."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from viewslots.methods.distributions import beta_parameters, full_precision, widen
from viewslots.methods.layers import FeatureNetwork, MultiLayerPerceptron
from viewslots.methods.ocloc.networks import NormalisedLinear, SlotUpdate
from viewslots.methods.ocloc.variables import Noise, Posterior


@full_precision
def slot_attention(keys: Float[Tensor, "B M P Dkey"], queries: Float[Tensor, "B M L Dkey"]) -> Float[Tensor, "B M L P"]:
    """Lines 8 and 9: weights that compete over the slots, then sum to one over the pixels, exactly."""
    key_dim = keys.shape[-1]
    similarity = torch.einsum("bmnd,bmld->bmln", keys, queries) / key_dim**0.5
    return similarity.log_softmax(2).softmax(3)


@full_precision
def mean_over_views(values: Float[Tensor, "B M L D"], view_mask: Bool[Tensor, "B M"]) -> Float[Tensor, "B L D"]:
    """Line 12, over the real views only."""
    views = view_mask.sum(1).clamp(min=1)
    return torch.where(view_mask[:, :, None, None], values, 0.0).sum(1) / views[:, None, None]


def background_first(background_index: Int[Tensor, "B"], layers: int) -> Int[Tensor, "B L"]:
    """The rearrangement of line 16, as indices: k*, then all others in their order."""
    others = torch.arange(layers - 1, device=background_index.device)
    others = others + (others >= background_index[:, None])
    return torch.cat([background_index[:, None], others], 1)


def take_slots(values: Float[Tensor, "B L D"], indices: Int[Tensor, "B L"]) -> Float[Tensor, "B L D"]:
    return values.gather(1, indices[:, :, None].expand_as(values))


class SharedViewCodes:
    """Lines 3, 11 and 16 of Algorithm 1: all slots of a view share one view code."""

    def axes(self, layers: int) -> tuple[int, ...]:
        """Of a view code, between view and dimension."""
        return ()

    def merge(self, v_view: Float[Tensor, "B M L Dvw"]) -> Float[Tensor, "B M *slots Dvw"]:
        """Line 11: the mean over all slots."""
        return widen(v_view).mean(2)

    def arrange(
        self, y_view: Float[Tensor, "B M *slots Dvw"], indices: Int[Tensor, "B L"]
    ) -> Float[Tensor, "B M *slots Dvw"]:
        """Line 16: nothing to do."""
        return y_view


class Inference(nn.Module):
    """All g networks and the learned start of the intermediate variables."""

    def __init__(
        self,
        *,
        features: FeatureNetwork,
        feature_dim: int,
        key_dim: int,
        value_dim: int,
        slot_view_dim: int,
        slot_attr_dim: int,
        update_hidden: int,
        hidden: int,
        view_dim: int,
        background_dim: int,
        attr_dim: int,
        details: int,
        rounds: int,
        sharing: SharedViewCodes,
    ) -> None:
        super().__init__()
        self.sharing = sharing
        self.slot_dims = [slot_view_dim, slot_attr_dim]
        self.attr_dim, self.details, self.rounds = attr_dim, details, rounds
        slot_dim, wide = slot_view_dim + slot_attr_dim, (hidden, hidden)
        self.mu_hat = nn.Parameter(torch.zeros(slot_dim))
        self.log_sigma_hat = nn.Parameter(torch.zeros(slot_dim))
        self.g_feat = features
        self.g_key = NormalisedLinear(feature_dim, key_dim)
        self.g_qry = NormalisedLinear(slot_dim, key_dim)
        self.g_val = NormalisedLinear(feature_dim, value_dim)
        self.g_upd = SlotUpdate(value_dim, slot_dim, update_hidden)
        self.g_sel = MultiLayerPerceptron(slot_attr_dim, wide, 1)
        self.g_bck = MultiLayerPerceptron(slot_attr_dim, wide, 2 * background_dim)
        self.g_obj = MultiLayerPerceptron(slot_attr_dim, wide, 2 * attr_dim + 3)
        self.g_view = MultiLayerPerceptron(slot_view_dim, wide, 2 * view_dim)

    def forward(
        self,
        image: Float[Tensor, "B M 3 H W"],
        view_mask: Bool[Tensor, "B M"],
        noise: Noise,
        background_index: Int[Tensor, "B"] | None = None,
    ) -> Posterior:
        """Algorithm 1. A given background index replaces the sample of line 16."""
        return self.rounds_from(self.encode(image), view_mask, noise, background_index)

    def rounds_from(
        self,
        seen: tuple[Float[Tensor, "B M P Dkey"], Float[Tensor, "B M P Dval"]],
        view_mask: Bool[Tensor, "B M"],
        noise: Noise,
        background_index: Int[Tensor, "B"] | None = None,
    ) -> Posterior:
        """From line 3 on, for pictures that are encoded."""
        keys, values = seen
        y_view, y_attr = self.start_view(noise.y_view), self.start_attr(noise.y_attr)
        for _ in range(self.rounds):
            y_view, y_attr = self.refine(keys, values, view_mask, y_view, y_attr)
        return self.posterior(y_view, y_attr, noise.background, background_index)

    def encode(
        self, image: Float[Tensor, "B M 3 H W"]
    ) -> tuple[Float[Tensor, "B M P Dkey"], Float[Tensor, "B M P Dval"]]:
        """Line 2, and the parts of lines 8 and 9 that no round changes. Pictures enter as 2x - 1."""
        B, M = image.shape[:2]
        features = self.g_feat(2 * image.flatten(0, 1) - 1)
        return self.g_key(features).unflatten(0, (B, M)), self.g_val(features).unflatten(0, (B, M))

    def start_view(self, noise: Float[Tensor, "B M *slots Dvw"]) -> Float[Tensor, "B M *slots Dvw"]:
        """Line 3. Paper: its diag(sigma) is a misprint for standard deviations sigma."""
        size = self.slot_dims[0]
        return self.mu_hat[:size] + self.log_sigma_hat[:size].exp() * noise

    def start_attr(self, noise: Float[Tensor, "B L Dat"]) -> Float[Tensor, "B L Dat"]:
        """Line 4, likewise."""
        size = self.slot_dims[0]
        return self.mu_hat[size:] + self.log_sigma_hat[size:].exp() * noise

    def refine(
        self,
        keys: Float[Tensor, "B M P Dkey"],
        values: Float[Tensor, "B M P Dval"],
        view_mask: Bool[Tensor, "B M"],
        y_view: Float[Tensor, "B M *slots Dvw"],
        y_attr: Float[Tensor, "B L Dat"],
    ) -> tuple[Float[Tensor, "B M *slots Dvw"], Float[Tensor, "B L Dat"]]:
        """One round of lines 7 to 12."""
        v_view, v_attr = self.update(keys, values, y_view, y_attr)
        return self.sharing.merge(v_view), mean_over_views(v_attr, view_mask)

    def update(
        self,
        keys: Float[Tensor, "B M P Dkey"],
        values: Float[Tensor, "B M P Dval"],
        y_view: Float[Tensor, "B M *slots Dvw"],
        y_attr: Float[Tensor, "B L Dat"],
    ) -> tuple[Float[Tensor, "B M L Dvw"], Float[Tensor, "B M L Dat"]]:
        """Lines 7 to 10."""
        M, L = keys.shape[1], y_attr.shape[1]
        y_view = y_view[:, :, None].expand(-1, -1, L, -1) if y_view.dim() == 3 else y_view
        y_full = torch.cat([y_view, y_attr[:, None].expand(-1, M, -1, -1)], -1)
        v_view, v_attr = self.g_upd(y_full, self.attend(keys, values, y_full)).split(self.slot_dims, -1)
        return v_view, v_attr

    def attend(
        self,
        keys: Float[Tensor, "B M P Dkey"],
        values: Float[Tensor, "B M P Dval"],
        y_full: Float[Tensor, "B M L D"],
    ) -> Float[Tensor, "B M L Dval"]:
        """Lines 8 and 9: u, what each slot sees in each view."""
        weights = slot_attention(keys, self.g_qry(y_full))
        return torch.einsum("bmln,bmnv->bmlv", weights, values)

    def posterior(
        self,
        y_view: Float[Tensor, "B M *slots Dvw"],
        y_attr: Float[Tensor, "B L Dat"],
        noise: Float[Tensor, "B L"],
        background_index: Int[Tensor, "B"] | None,
    ) -> Posterior:
        """Lines 15 to 20. k* of line 16 is the arg max of log pi plus Gumbel noise, a sample of Cat(pi)."""
        log_pi = widen(self.g_sel(y_attr)).squeeze(-1).log_softmax(-1)
        if background_index is None:
            background_index = (log_pi.detach() + noise).argmax(-1)
        indices = background_first(background_index, y_attr.shape[1])
        y_attr, y_view = take_slots(y_attr, indices), self.sharing.arrange(y_view, indices)
        mu_view, log_sigma_view = widen(self.g_view(y_view)).chunk(2, -1)
        mu_bck, log_sigma_bck = widen(self.g_bck(y_attr[:, 0])).chunk(2, -1)
        sizes = [self.attr_dim, self.attr_dim, 2, 1]
        mu_attr, log_sigma_attr, tau, logit_kappa = torch.split(widen(self.g_obj(y_attr[:, 1:])), sizes, -1)
        return Posterior(
            mu_view=mu_view,
            log_sigma_view=log_sigma_view,
            mu_bck=mu_bck,
            log_sigma_bck=log_sigma_bck,
            mu_attr=self.with_room(mu_attr),
            log_sigma_attr=self.with_room(log_sigma_attr),
            tau=beta_parameters(tau),
            logit_kappa=logit_kappa.squeeze(-1),
            log_pi=log_pi,
            background_index=background_index,
            y_view=y_view,
            y_attr=y_attr,
        )

    def with_room(self, values: Float[Tensor, "B K Dattr"]) -> Float[Tensor, "B K Dcode"]:
        """With details, of which Algorithm 1 knows nothing: mean and log deviation are those of the prior."""
        return F.pad(values, (0, self.details)) if self.details else values

    def find_objects(
        self,
        image: Float[Tensor, "B M 3 H W"],
        view_mask: Bool[Tensor, "B M"],
        y_view: Float[Tensor, "B M *slots Dvw"],
        noise: Noise,
    ) -> Posterior:
        """Algorithm 1 from viewpoints that are known: line 11 is left out."""
        keys, values = self.encode(image)
        y_attr = self.start_attr(noise.y_attr)
        for _ in range(self.rounds):
            _, v_attr = self.update(keys, values, y_view, y_attr)
            y_attr = mean_over_views(v_attr, view_mask)
        return self.posterior(y_view, y_attr, noise.background, None)

    def estimate_views(
        self, image: Float[Tensor, "B M 3 H W"], given: Posterior, noise_view: Float[Tensor, "B M Dvw"]
    ) -> Posterior:
        """Appendix 'Viewpoint Estimation': line 4 takes the given y_attr and line 12 is left out."""
        keys, values = self.encode(image)
        y_view = self.start_view(noise_view)
        for _ in range(self.rounds):
            v_view, _ = self.update(keys, values, y_view, given.y_attr)
            y_view = self.sharing.merge(v_view)
        mu_view, log_sigma_view = widen(self.g_view(y_view)).chunk(2, -1)
        return replace(given, mu_view=mu_view, log_sigma_view=log_sigma_view, y_view=y_view)
