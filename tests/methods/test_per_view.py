"""The baseline without object constancy: every view alone, with the networks and the saved names of OCLOC."""

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from paper_cases import SMALL, WARM, K, case, generator, scenes, shaken
from safetensors.torch import load_file

from viewslots.errors import UserError
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.variables import Noise
from viewslots.methods.per_view.model import PerView
from viewslots.methods.registry import load_model
from viewslots.types import SceneBatch


def test_it_shares_nothing_across_views() -> None:
    """A changed picture of view 1 changes no answer of view 0, which it does in OCLOC."""
    for method, shares in ((PerView, False), (Ocloc, True)):
        model = method(SMALL, generator(5)).eval()
        batch = scenes(1, 2)
        changed = SceneBatch(batch.image.clone(), batch.view_mask)
        changed.image[:, 1] = 1 - changed.image[:, 1]
        left, right = (model.infer(item, generator(6)).decomposition() for item in (batch, changed))
        assert torch.equal(left.layer_masks[:, 0], right.layer_masks[:, 0]) != shares
        assert not torch.equal(left.layer_masks[:, 1], right.layer_masks[:, 1])


def test_it_is_a_scene_for_every_view() -> None:
    model = PerView(SMALL, generator(5)).double().eval()
    batch, noise = case(model, B=2, M=2)
    batch = replace(batch, view_mask=torch.tensor([[True, True], [True, False]]))
    losses = model(batch, WARM, noise)
    for b, views in enumerate((2, 1)):
        total = 0.0
        for m in range(views):
            alone = SceneBatch(batch.image[b : b + 1, m : m + 1], torch.ones(1, 1, dtype=torch.bool))
            row = slice(2 * b + m, 2 * b + m + 1)
            own = Noise(**{item.name: getattr(noise, item.name)[row] for item in fields(Noise)})
            total += model(alone, WARM, own).comparable.item()
        assert losses.comparable[b].item() == pytest.approx(total, rel=1e-9)


def test_it_has_a_view_code_for_every_slot() -> None:
    model = PerView(SMALL, generator(5)).double().eval()
    batch, noise = case(model, B=2, M=1)
    posterior = model.single.infer_posterior(batch, noise, torch.tensor([2, 0]))
    assert posterior.mu_view.shape == (2, 1, K + 1, SMALL.view_dim)
    assert posterior.y_view[:, 0].std(1).min().item() > 1e-3
    unmoved = model.single.infer_posterior(batch, noise, torch.tensor([0, 0]))
    assert torch.equal(posterior.y_view[0, 0], unmoved.y_view[0, 0, [2, 0, 1, 3]])
    # The background reads the view code of its own slot: changing those of the objects leaves it alone.
    latents = model.single.sample(posterior, noise, WARM)
    moved = replace(latents, z_view=latents.z_view + torch.tensor([0.0, 1, 1, 1]).double()[:, None])
    left, right = model.single.layers(latents), model.single.layers(moved)
    assert torch.equal(left.background, right.background)
    assert not torch.equal(left.appearance, right.appearance)


@torch.no_grad()
def test_objects_read_the_view_code_of_their_own_slot() -> None:
    model = shaken(PerView(SMALL, generator(5)), 6)
    batch, noise = case(model, B=1, M=1)
    latents = model.single.sample(model.single.infer_posterior(batch, noise), noise, WARM)
    plain = model.single.layers(latents)
    for layer in range(K + 1):
        z_view = latents.z_view.clone()
        z_view[:, :, layer] += 1
        moved = model.single.layers(replace(latents, z_view=z_view))
        assert torch.equal(moved.background, plain.background) == (layer != 0)
        for name in ("appearance", "logit_shp", "order", "centre"):
            left, right = getattr(moved, name), getattr(plain, name)
            same = [torch.equal(left[:, :, k], right[:, :, k]) for k in range(K)]
            assert same == [k + 1 != layer for k in range(K)], name


def test_presence_ignores_padded_views() -> None:
    model = PerView(SMALL, generator(4)).eval()
    batch = scenes(2, 3)
    masked = replace(batch, view_mask=torch.tensor([[True, False, False]] * 2))
    plain, padded = (model.infer(given, generator()).decomposition() for given in (batch, masked))
    assert plain.presence is not None
    assert padded.presence is not None
    assert bool((padded.presence <= plain.presence).all())
    assert bool((padded.presence < plain.presence).any())


def test_padded_views_leave_the_real_ones_alone() -> None:
    """Answers of real views are the same bits, whatever stands beside them."""
    model, batch = PerView(SMALL, generator(4)).eval(), scenes(2, 3)
    mask = torch.tensor([[True, False, True], [True, True, False]])
    plain, padded = (model.infer(replace(batch, view_mask=given), generator()) for given in (batch.view_mask, mask))
    for name in ("reconstruction", "layer_masks", "complete_shapes", "depth_order"):
        left, right = (getattr(answer.decomposition(), name) for answer in (plain, padded))
        assert torch.equal(left[mask], right[mask]), name


def test_saved_weights_have_the_names_of_ocloc(tmp_path: Path) -> None:
    model = PerView(SMALL, generator(4))
    model.save_pretrained(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    assert saved.keys() == Ocloc(SMALL).state_dict().keys() == model.state_dict().keys()
    assert json.loads((tmp_path / "config.json").read_text())["method"] == "per-view"


@pytest.mark.parametrize("method", ["per-view", "ocloc-per-view"])
def test_folders_of_either_name_load(method: str, tmp_path: Path) -> None:
    """The method had another name before."""
    model, batch = PerView(SMALL, generator(4)).eval(), scenes(2, 2)
    model.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"method": method}))
    for loaded in (load_model(tmp_path), PerView.from_pretrained(tmp_path, expect=SMALL)):
        assert type(loaded) is PerView
        left, right = (one.infer(batch, generator(3)).decomposition() for one in (model, loaded))
        assert torch.equal(left.layer_masks, right.layer_masks)
    with pytest.raises(UserError, match="method 'per-view', not 'ocloc'"):
        Ocloc.from_pretrained(tmp_path)


def test_what_it_wraps_has_its_parameters_and_no_others() -> None:
    """After moving them too; training mode reaches NVIL, which alone asks for it."""
    model = PerView(SMALL, generator(4)).double().train()
    assert {id(value) for value in model.parameters()} == {id(value) for value in model.single.parameters()}
    assert model.single.nvil is model.nvil
    assert model.single.nvil.training
    assert not model.eval().single.nvil.training
    assert model.parameter_counts() == Ocloc(SMALL).parameter_counts()
