"""Lines 8 and 9 of Algorithm 1 without keys and values."""

from jaxtyping import Float
from torch import Tensor

from viewslots.methods.fast.attention import attended_mean, map_values, project_queries
from viewslots.methods.fast.features import FastFeatures
from viewslots.methods.ocloc.inference import Inference


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
        projected, constant = project_queries(self.g_qry(y_full), self.g_key.norm, self.g_key.linear)
        return map_values(attended_mean(keys, projected, constant), self.g_val.norm, self.g_val.linear)
