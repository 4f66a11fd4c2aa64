"""Several random starts of the inference, and the best of them."""

from jaxtyping import Float
from torch import Tensor

from viewslots.viewpoints.likeness import picture_errors
from viewslots.viewpoints.scene import InferredScene, Reader


def best_start(
    reader: Reader, pictures: Float[Tensor, "M 3 H W"], *, seed: int = 0, starts: int = 1, slots: int | None = None
) -> InferredScene:
    """Of the answers for `seed` and those after it, the one that rebuilds the pictures best; this needs no truth."""
    found = [reader.decompose(pictures, seed=seed + index, slots=slots) for index in range(starts)]
    if starts == 1:
        return found[0]
    return min(found, key=lambda scene: float(picture_errors(scene).mean()))
