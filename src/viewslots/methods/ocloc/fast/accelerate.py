"""A view of a model that shares its parameters and computes faster."""

from jaxtyping import Float
from torch import Tensor, nn

from viewslots.methods.fast.broadcast import fold_broadcast
from viewslots.methods.fast.features import fold_features
from viewslots.methods.fast.folding import fold_stages
from viewslots.methods.fast.half import view_of
from viewslots.methods.layers import BroadcastDecoder
from viewslots.methods.ocloc.fast.attention import ProjectedAttention
from viewslots.methods.ocloc.fast.placing import FusedPlacing
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.networks import CompactDecoder, DenseDecoder


def accelerated(model: Ocloc) -> Ocloc:
    """The fast twin of a model on its present device: the same parameters and buffers, other ways to compute.

    Make it after the model has gone to its device.
    """
    fast = view_of(model, type(model))
    fast.image_model = model.image_model.fast()
    fast.inference = view_of(model.inference, ProjectedAttention)
    fast.inference.g_feat = fold_features(model.inference.g_feat)
    fast.generation = view_of(model.generation, FusedPlacing)
    for name in ("f_shp_apc", "f_bck", "f_det"):
        if (decoder := getattr(model.generation, name)) is not None:
            setattr(fast.generation, name, fold_decoder(decoder))
    return fast


class ChannelsLastCompactDecoder(CompactDecoder):
    """Broadcasts with the channels last in memory, where its convolutions want them."""

    def forward(self, code: Float[Tensor, "I D"]) -> Float[Tensor, "I outputs H W"]:
        place = self.position.places().permute(0, 2, 3, 1)
        return self.convolutions((self.connected(code)[:, None, None] + place).permute(0, 3, 1, 2))


def fold_decoder(decoder: nn.Module) -> nn.Module:
    if isinstance(decoder, BroadcastDecoder):
        return fold_broadcast(decoder)
    assert isinstance(decoder, DenseDecoder | CompactDecoder)
    kind = ChannelsLastCompactDecoder if isinstance(decoder, CompactDecoder) else DenseDecoder
    folded = view_of(decoder, kind)
    folded.convolutions = fold_stages(list(decoder.convolutions))
    return folded
