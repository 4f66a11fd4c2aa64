"""How many objects there are: OCA of the appendix.

The truth is the number of objects with a visible pixel in the views used. A method with a background counts the slots
whose presence is at least 0.5, and cannot answer without presence. A method without counts the slots that win a pixel,
minus one for the background, whatever presence it gives.
"""

from jaxtyping import Float, Float64, Int
from torch import Tensor

PRESENT = 0.5


def visible_objects(table: Float64[Tensor, "S G L"]) -> Int[Tensor, "S"]:
    """Objects that own a pixel, from the contingency table of objects and layers."""
    return (table.sum(2) > 0).sum(1)


def counted_objects(
    table: Float64[Tensor, "S R L"], presence: Float[Tensor, "S K"] | None, has_background: bool
) -> Int[Tensor, "S"] | None:
    """The prediction, from the contingency table of all pixels or from presence; None if there is no answer."""
    if not has_background:
        return (table.sum(1) > 0).sum(1) - 1
    return None if presence is None else (presence >= PRESENT).sum(1)
