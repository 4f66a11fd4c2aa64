"""Attention without keys and values: linear maps commute with sums over pixels.

Keys and values are affine in the same normalised features x: key = W_k (g_k x + b_k) and value = W_v (g_v x + b_v).
So q . key = (g_k W_k^T q) . x + q . W_k b_k, and the weighted mean of values is W_v (g_v mean(x) + b_v), since the
weights of a slot sum to one. L queries are mapped a round instead of P features, and x alone is kept.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from viewslots.kernels import has_triton
from viewslots.methods.distributions import full_precision, widen


@full_precision
def project_queries(
    queries: Float[Tensor, "*N L Dkey"], norm: nn.LayerNorm, key: nn.Linear
) -> tuple[Float[Tensor, "*N L D"], Float[Tensor, "*N L"]]:
    """The query in the space of x, and what it gains from the shift of the key's normalisation; both scaled."""
    queries = queries / queries.shape[-1] ** 0.5
    back = queries @ widen(key.weight)
    return back * norm.weight, back @ norm.bias


@full_precision
def map_values(mean: Float[Tensor, "*N L D"], norm: nn.LayerNorm, value: nn.Linear) -> Float[Tensor, "*N L Dval"]:
    return F.linear(mean * norm.weight + norm.bias, widen(value.weight))


def attended_mean(
    core: Float[Tensor, "*N P D"], projected: Float[Tensor, "*N L D"], constant: Float[Tensor, "*N L"], floor: float = 0
) -> Float[Tensor, "*N L D"]:
    """Mean of x under each slot's attention: slots compete for every pixel, `floor` is added to what each gets, and
    the weights of a slot are scaled to sum to one."""
    if has_triton(core.device) and core.dtype == torch.bfloat16:
        from viewslots.methods.fast.attention_cuda import AttendedMean

        return AttendedMean.apply(core, projected, constant, floor)  # type: ignore[no-untyped-call]
    return plain_attended_mean(core, projected, constant, floor)


@full_precision
def plain_attended_mean(core: Tensor, projected: Tensor, constant: Tensor, floor: float = 0) -> Tensor:
    """The oracle of the kernel, and the code of every other device."""
    similarity = torch.einsum("...nd,...ld->...ln", core, projected) + constant[..., None]
    shares = similarity.log_softmax(-2)
    weights = shares.softmax(-1)
    if floor:
        lifted = shares.exp() + floor
        weights = lifted / lifted.sum(-1, keepdim=True)
    return torch.einsum("...ln,...nd->...ld", weights, core)
