"""Collapse is noticed: hand-made answers with known figures, and the words that follow from them."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from viewslots.training.validation import Diagnostics, diagnose, warnings
from viewslots.types import Decomposition

B, M, L, SIDE = 2, 2, 4, 4


def answer(masks: Tensor, presence: Tensor | None = None) -> Decomposition:
    return Decomposition(
        reconstruction=torch.zeros(B, M, 3, SIDE, SIDE),
        layer_masks=masks,
        has_background=True,
        complete_shapes=None,
        presence=torch.ones(B, L - 1) if presence is None else presence,
        presence_probability=None,
        depth_order=None,
    )


def hard(winner: Tensor) -> Tensor:
    """One-hot masks for the winning layer of each pixel."""
    return torch.nn.functional.one_hot(winner, L).permute(0, 1, 4, 2, 3).float()


def certain(*chosen: int) -> Tensor:
    return torch.nn.functional.one_hot(torch.tensor(chosen), L).float().log_softmax(1)


def test_figures_of_a_decided_answer() -> None:
    winner = torch.zeros(B, M, SIDE, SIDE, dtype=torch.long)
    winner[0, 1, 0, 0] = 1  # one pixel in one view is enough
    winner[0, 0, 1, :2] = 3
    winner[1, :, 2] = 2
    found = diagnose(answer(hard(winner), torch.tensor([[0.9, 0.4, 0.5], [0.1, 0.7, 0.2]])), certain(3, 0))
    assert found.slots_used == pytest.approx((2 + 1) / 2)
    assert found.background_share == pytest.approx(1 - (1 + 2 + 2 * SIDE) / (B * M * SIDE * SIDE))
    assert found.mask_entropy == pytest.approx(0)
    assert found.object_entropy == pytest.approx(0)
    assert found.background_choice == pytest.approx((0.5, 0, 0, 0.5))
    assert found.absent == pytest.approx(3 / 6)
    assert warnings(found, 1000, 1000) == {}


def test_slots_that_share_everything() -> None:
    found = diagnose(answer(torch.full((B, M, L, SIDE, SIDE), 1 / L)), certain(0, 1))
    assert found.mask_entropy == pytest.approx(math.log(L))
    assert found.object_entropy == pytest.approx(math.log(L - 1))
    assert "share everything" in warnings(found, 300, 1000)["shared"]


def test_objects_that_share_everything_behind_a_decided_background() -> None:
    """The mean entropy is low, since most pixels are background; among the objects it is not."""
    masks = torch.zeros(B, M, L, SIDE, SIDE)
    masks[:, :, 0] = 1
    masks[:, :, :, 0] = torch.tensor([0.01, 0.33, 0.33, 0.33])[:, None]
    found = diagnose(answer(masks), certain(0, 0))
    assert found.mask_entropy < 0.5 * math.log(L)
    assert found.object_entropy == pytest.approx(math.log(3))
    assert set(warnings(found, 300, 1000)) == {"shared"}


def test_a_background_that_takes_all() -> None:
    found = diagnose(answer(hard(torch.zeros(B, M, SIDE, SIDE, dtype=torch.long))), certain(0, 0))
    assert found.slots_used == 0
    assert found.background_share == 1
    line = warnings(found, 300, 1000)["no objects"]
    assert "no objects by step 300" in line
    assert "--seed" in line
    assert set(warnings(found, 300, 1000)) == {"no objects"}


def test_nothing_is_said_too_early() -> None:
    found = Diagnostics(0.0, (1.0, 0.0), 1.0, math.log(2), 0.0, 1.0)
    assert warnings(found, 199, 1000) == {}
    assert set(warnings(found, 200, 1000)) == {"no objects", "shared"}


def test_one_object_slot_has_nobody_to_share_with() -> None:
    found = Diagnostics(1.0, (1.0, 0.0), 0.5, 0.0, 0.0, 0.0)
    assert warnings(found, 1000, 1000) == {}
    assert warnings(replace(found, object_entropy=0.1), 1000, 1000) == {}


def test_figures_as_json() -> None:
    found = Diagnostics(1.5, (0.75, 0.25), 0.5, 0.1, 0.2, 0.3).to_json()
    assert found["background_choice_1"] == 0.25
    assert found["slots_used"] == 1.5
    assert all(isinstance(value, float) for value in found.values())
