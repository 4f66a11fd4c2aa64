"""One feature vector a place, without ever widening the maps."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from viewslots.kernels import has_triton
from viewslots.methods.fast.epilogue import bias_relu_shuffle
from viewslots.methods.fast.folding import fold_stages
from viewslots.methods.fast.half import view_of
from viewslots.methods.layers import FeatureNetwork


class FastFeatures(FeatureNetwork):
    def core(self, images: Float[Tensor, "I 3 H W"], eps: float) -> Float[Tensor, "I P D"]:
        """Layer normalisation, without scale and shift, of what `forward` answers."""
        last = self.pixelwise[3]
        assert isinstance(last, nn.Linear)
        return add_norm(F.linear(self.hidden(images), last.weight), last.bias[None], None, None, eps)

    def hidden(self, images: Float[Tensor, "I 3 H W"]) -> Float[Tensor, "I P D"]:
        """Up to the last layer."""
        norm, first, *_ = self.pixelwise
        assert isinstance(norm, nn.LayerNorm)
        assert isinstance(first, nn.Linear)
        maps = self.convolutions(images).flatten(2).transpose(1, 2)
        place = self.position.places().flatten(2).transpose(1, 2)[0]
        values = add_norm(maps, place, norm.weight, norm.bias, norm.eps)
        return bias_relu(F.linear(values, first.weight), first.bias)


def fold_features(features: FeatureNetwork) -> FastFeatures:
    folded = view_of(features, FastFeatures)
    folded.convolutions = fold_stages(list(features.convolutions))
    return folded


def bias_relu(values: Float[Tensor, "I P D"], bias: Float[Tensor, "D"]) -> Float[Tensor, "I P D"]:
    """As the epilogue of a convolution over P places in a row."""
    maps = values.transpose(1, 2).unsqueeze(-1)
    return bias_relu_shuffle(maps, bias, 1).squeeze(-1).transpose(1, 2)


def add_norm(
    values: Float[Tensor, "I P D"],
    table: Float[Tensor, "T D"],
    scale: Float[Tensor, "D"] | None,
    shift: Float[Tensor, "D"] | None,
    eps: float,
) -> Float[Tensor, "I P D"]:
    """Layer normalisation of values + table, whose rows belong to the P places, or are one for all of them."""
    if has_triton(values.device) and values.dtype == torch.bfloat16:
        from viewslots.methods.fast.features_cuda import AddNorm

        return AddNorm.apply(values, table, scale, shift, eps)  # type: ignore[no-untyped-call]
    return plain_add_norm(values, table, scale, shift, eps)


def plain_add_norm(values: Tensor, table: Tensor, scale: Tensor | None, shift: Tensor | None, eps: float) -> Tensor:
    """The oracle of the kernel, and the code of every other device."""
    with torch.autocast(values.device.type, enabled=False):
        return F.layer_norm(values + table, values.shape[-1:], scale, shift, eps)
