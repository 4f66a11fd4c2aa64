"""Familiarity: are pictures like those a model was trained on? The out-of-distribution score is how badly it rebuilds
them."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from viewslots.errors import UserError
from viewslots.files import read_json

if TYPE_CHECKING:
    from viewslots.viewpoints.scene import InferredScene

TYPICAL_FILE = "typical.json"
MEDIAN, LIMIT = "0.5", "0.995"
"""Keys of the quantiles that are used here."""


@dataclass(frozen=True)
class Typical:
    """How well a model rebuilds pictures of the kind it was trained on."""

    data: str
    """What they are, in a few words."""
    quantiles: dict[str, float]
    """Of the mean squared error of a picture, by share."""


def read_typical(folder: Path) -> Typical | None:
    """Measured figures beside a model's weights, where there are any."""
    file = folder / TYPICAL_FILE
    if not file.is_file():
        return None
    values = read_json(file)
    try:
        quantiles = {share: float(error) for share, error in values["quantiles"].items()}
        if not 0 < quantiles[MEDIAN] <= quantiles[LIMIT]:
            raise ValueError("quantiles must be positive and grow")
        return Typical(str(values["data"]), quantiles)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{file}: damaged ({error!r}); without this file, unfamiliar pictures go unnoticed") from error


def picture_errors(scene: "InferredScene") -> Float[Tensor, "M"]:
    """Mean squared error of each picture of a scene as it is rebuilt; none for a scene from the prior."""
    if scene.images is None:
        return scene.views.new_zeros(0)
    rebuilt = torch.stack([view.image for view in scene.render_many(scene.views)])
    return (scene.images - rebuilt).square().mean((1, 2, 3))


def unfamiliarity(scene: "InferredScene") -> str | None:
    """A warning where pictures are rebuilt worse than 99.5 % of those the model knows. Ask before you edit."""
    typical = scene.reader.typical
    if typical is None:
        return None
    errors = picture_errors(scene).tolist()
    odd = [place for place, error in enumerate(errors, 1) if error > typical.quantiles[LIMIT]]
    if not odd:
        return None
    one = len(odd) == 1
    which = f"picture {odd[0]} looks" if one else f"pictures {', '.join(map(str, odd))} look"
    times = max(errors) / typical.quantiles[MEDIAN]
    return (
        f"{which} unlike what this model was trained on ({typical.data}): "
        f"it rebuilds {'it' if one else 'them'} with {'' if one else 'up to '}{times:.1f} times the usual error, "
        "so what it says about objects may mean little"
    )
