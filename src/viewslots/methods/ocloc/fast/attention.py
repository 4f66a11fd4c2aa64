"""Lines 8 and 9 of Algorithm 1 without keys and values: linear maps commute with sums over pixels.

Keys and values are affine in the same normalised features x: key = W_k (g_k x + b_k) and value = W_v (g_v x + b_v).
So q . key = (g_k W_k^T q) . x + q . W_k b_k, and the weighted mean of values is W_v (g_v mean(x) + b_v), since the
weights of a slot sum to one. L queries are mapped a round instead of P features, and x alone is kept.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from viewslots.methods.distributions import full_precision
from viewslots.methods.fast.features import FastFeatures
from viewslots.methods.ocloc.inference import Inference
from viewslots.methods.ocloc.networks import NormalisedLinear


class ProjectedAttention(Inference):
    """An Inference that attends in the space of its normalised features."""

    def encode(self, image: Float[Tensor, "B M 3 H W"]) -> tuple[Float[Tensor, "B M P D"], Float[Tensor, "B M P D"]]:
        """x of the features, in place of keys and of values."""
        assert isinstance(self.g_feat, FastFeatures)
        core = self.g_feat.core(2 * image.flatten(0, 1) - 1, self.g_key.norm.eps)
        core = core.view(*image.shape[:2], *core.shape[1:])
        return core, core

    def attend(
        self, keys: Float[Tensor, "B M P D"], values: Float[Tensor, "B M P D"], y_full: Float[Tensor, "B M L Dslot"]
    ) -> Float[Tensor, "B M L Dval"]:
        projected, constant = project_queries(self.g_qry(y_full), self.g_key)
        return map_values(attended_mean(keys, projected, constant), self.g_val)


@full_precision
def project_queries(
    queries: Float[Tensor, "B M L Dkey"], g_key: NormalisedLinear
) -> tuple[Float[Tensor, "B M L D"], Float[Tensor, "B M L"]]:
    """The query in the space of x, and what it gains from the shift of the key's normalisation; both scaled."""
    queries = queries / queries.shape[-1] ** 0.5
    back = queries @ g_key.linear.weight
    return back * g_key.norm.weight, back @ g_key.norm.bias


@full_precision
def map_values(mean: Float[Tensor, "B M L D"], g_val: NormalisedLinear) -> Float[Tensor, "B M L Dval"]:
    return F.linear(mean * g_val.norm.weight + g_val.norm.bias, g_val.linear.weight)


def attended_mean(
    core: Float[Tensor, "B M P D"], projected: Float[Tensor, "B M L D"], constant: Float[Tensor, "B M L"]
) -> Float[Tensor, "B M L D"]:
    """Mean of x under each slot's attention."""
    if core.is_cuda and core.dtype == torch.bfloat16:
        from viewslots.methods.ocloc.fast.attention_cuda import AttendedMean

        return AttendedMean.apply(core, projected, constant)  # type: ignore[no-untyped-call]
    return plain_attended_mean(core, projected, constant)


@full_precision
def plain_attended_mean(core: Tensor, projected: Tensor, constant: Tensor) -> Tensor:
    """The oracle of the kernel, and the code of every other device."""
    similarity = torch.einsum("bmnd,bmld->bmln", core, projected) + constant[..., None]
    weights = similarity.log_softmax(2).softmax(3)
    return torch.einsum("bmln,bmnd->bmld", weights, core)
