"""Why a model counts wrong: how many answers say too many, and what the surplus objects are.

python tools/surplus_objects.py compact DATA OUT.json [STARTS]

Test1, first four views, five answers a scene: plain ones, or by a search of so many starts where that is given. A found
object is surplus if no true object has most of its visible pixels in it.
"""

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from viewslots.data.dataset import SceneDataset
from viewslots.data.store import Store
from viewslots.data.views import FirstViews
from viewslots.files import write_json
from viewslots.methods.contract import Search
from viewslots.provenance import provenance
from viewslots.runs import load_run
from viewslots.types import BACKGROUND

SPLIT, VIEWS, SLOTS, ANSWERS, BATCH = "test1", 4, 7, 5, 20
FEW_PIXELS = 8
"""Of all views together: fewer say nothing about where an object lies."""


def visible(segment: UInt8[Tensor, "M H W"], count: int) -> list[int]:
    return [k for k in range(count) if bool((segment == k).any())]


def at_border(mask: Tensor) -> bool:
    return bool(mask[:, 0].any() | mask[:, -1].any() | mask[:, :, 0].any() | mask[:, :, -1].any())


def inside_another(shapes: Float[Tensor, "M K H W"], slot: int, others: list[int]) -> bool:
    """At least half of its complete shape, or of the other's if that is smaller, is common to both."""
    mine = shapes[:, slot]
    for other in others:
        smaller = torch.minimum(mine.sum(), shapes[:, other].sum()).clamp(min=1)
        if torch.minimum(mine, shapes[:, other]).sum() / smaller >= 0.5:
            return True
    return False


class Tally:
    def __init__(self) -> None:
        self.errors: Counter[int] = Counter()
        self.surplus: Counter[str] = Counter()
        self.objects: Counter[str] = Counter()
        self.pixels: list[int] = []

    def add(
        self,
        layer: Int[Tensor, "M H W"],
        present: list[int],
        shapes: Float[Tensor, "M K H W"],
        segment: UInt8[Tensor, "M H W"],
        count: int,
    ) -> None:
        seen = visible(segment, count)
        self.errors[len(present) - len(seen)] += 1
        homes = {k: int(torch.bincount(layer[segment == k], minlength=SLOTS + 1).argmax()) - 1 for k in seen}
        for k, home in homes.items():
            kind = "found" if home in present else "missed"
            self.objects[kind] += 1
            self.objects[f"{kind} at the border"] += at_border(segment == k)
        held = [home for home in set(homes.values()) if home >= 0]
        self.objects["slots with more than one"] += sum(list(homes.values()).count(home) > 1 for home in held)
        for slot in held:  # what to compare the surplus ones with
            self.objects["slots with any"] += 1
            self.objects["slots with any, inside another"] += inside_another(
                shapes, slot, [other for other in held if other != slot]
            )
        for slot in set(present) - set(held):
            self._surplus(layer == slot + 1, shapes, slot, held, segment)

    def _surplus(
        self,
        won: Tensor,
        shapes: Float[Tensor, "M K H W"],
        slot: int,
        held: list[int],
        segment: UInt8[Tensor, "M H W"],
    ) -> None:
        self.surplus["all"] += 1
        self.surplus["inside another"] += inside_another(shapes, slot, held)
        self.pixels.append(int(won.sum()))
        if won.sum() > FEW_PIXELS:
            floor = bool((segment[won] == BACKGROUND).float().mean() > 0.5)
            self.surplus["more than a few pixels"] += 1
            self.surplus["of these mostly on background"] += floor

    def to_json(self) -> dict[str, object]:
        return {
            "count_error": {str(error): times for error, times in sorted(self.errors.items())},
            "objects": dict(self.objects),
            "surplus": dict(self.surplus),
            "surplus_pixels_median": float(np.median(self.pixels)) if self.pixels else None,
        }


def measure(source: str, data: Path, out: Path, search: Search | None) -> None:
    model, dataset, tally = load_run(source), SceneDataset(Store.open(data).split(SPLIT)), Tally()
    for answer in range(ANSWERS):
        for first in range(0, len(dataset), BATCH):
            indices = range(first, min(first + BATCH, len(dataset)))
            batch, truth = dataset.batch(indices, FirstViews(VIEWS)), dataset.truth(indices, FirstViews(VIEWS))
            generator = torch.Generator().manual_seed(1000 * answer + first)
            found = model.infer(batch, generator, SLOTS, search).decomposition()
            assert found.presence is not None
            assert found.complete_shapes is not None
            assert truth.segment is not None
            assert truth.num_objects is not None
            layers = found.layer_masks.argmax(2)
            for i in range(len(indices)):
                present = torch.nonzero(found.presence[i] >= 0.5).flatten().tolist()
                shapes, count = found.complete_shapes[i], int(truth.num_objects[i])
                tally.add(layers[i], present, shapes, truth.segment[i], count)
    command = {"command": " ".join(["python", *sys.argv])}
    write_json(out, tally.to_json() | {"provenance": provenance() | command})


if __name__ == "__main__":
    starts = Search(int(sys.argv[4])) if len(sys.argv) > 4 else None
    measure(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), starts)
