"""Scores as named papers have them: loops over pictures with scikit-learn, by hand, and through the command."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from disc_world import disc_store
from sklearn.metrics import adjusted_rand_score
from toy_scenes import random_prediction, random_truth

from viewslots import cli
from viewslots.commands.evaluation import report
from viewslots.commands.score import score
from viewslots.data.store import SplitArrays
from viewslots.errors import UserError
from viewslots.metrics.arrays import MaskBlock
from viewslots.metrics.lpips import Lpips, wanted
from viewslots.metrics.ssim import structural_similarity
from viewslots.protocol.masks import score_masks, scored_window
from viewslots.protocols import OURS, PROTOCOLS, find_protocol

BACK = 255
NAMED = [protocol for protocol in PROTOCOLS.values() if protocol is not OURS]
PAGE = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def block(seed: int = 0, slots: int = 4, views: int = 3) -> MaskBlock:
    rng = np.random.default_rng(seed)
    truth = random_truth(rng, scenes=4, views=views)
    masks = random_prediction(rng, truth, slots).layer_masks
    image = torch.from_numpy(rng.random((4, views, 3, 7, 7)))
    return MaskBlock(masks, truth.segment, truth.view_mask, image.sqrt(), image)


def values(name: str, of: MaskBlock) -> dict[str, float | None]:
    return score_masks(PROTOCOLS[name], of).values()


def ari(segment: Any, layer: Any, foreground: bool) -> float | None:
    segment, layer = np.asarray(segment).ravel(), np.asarray(layer).ravel()
    used = segment != BACK if foreground else segment >= 0
    return float(adjusted_rand_score(segment[used], layer[used])) if used.any() else None


def best(segment: Any, layer: Any) -> list[float]:
    """Best overlap of every object that is seen."""
    segment, layer = np.asarray(segment), np.asarray(layer)
    pairs = [[(segment == g) & (layer == k) for k in np.unique(layer)] for g in np.unique(segment[segment != BACK])]
    return [
        max(both.sum() / ((segment == g) | (layer == k)).sum() for k, both in zip(np.unique(layer), row, strict=True))
        for g, row in zip(np.unique(segment[segment != BACK]), pairs, strict=True)
    ]


def mean(found: list[float | None]) -> float:
    return float(np.mean([value for value in found if value is not None]))


def pictures(of: MaskBlock) -> list[tuple[Any, Any]]:
    layer = of.layers.argmax(2)
    return [(of.segment[place], layer[place]) for place in np.ndindex(*of.segment.shape[:2])]


def scenes(of: MaskBlock) -> list[tuple[Any, Any]]:
    return list(zip(of.segment, of.layers.argmax(2), strict=True))


@pytest.mark.parametrize("seed", range(3))
def test_every_protocol_by_loops(seed: int) -> None:
    made = block(seed)
    bare = replace(made, segment=made.segment.clone())
    bare.segment[0] = BACK  # a scene without objects: 1 where a paper's code says so, left out elsewhere
    single = [ari(*pair, foreground=True) for pair in pictures(bare)]
    whole = [ari(*pair, foreground=True) for pair in scenes(bare)]

    def or_one(found: list[float | None]) -> float:
        return mean([1.0 if value is None else value for value in found])

    assert values("slot-attention", bare) == {"FG-ARI": pytest.approx(mean(single), abs=1e-12)}
    assert values("slot-attention-video", bare) == {"FG-ARI": pytest.approx(or_one(whole), abs=1e-12)}
    overlaps = [best(*pair) for pair in pictures(bare)]
    by_picture = mean([np.mean(found) if found else None for found in overlaps])
    assert values("mbo-i", bare) == pytest.approx({"FG-ARI": or_one(single), "mBO": by_picture}, abs=1e-12)
    over_objects = mean([value for found in overlaps for value in found])
    assert values("mbo-i-objects", bare) == {"mBO": pytest.approx(over_objects, abs=1e-12)}
    videos = mean([np.mean(found) if (found := best(*pair)) else None for pair in scenes(bare)])
    assert values("mbo-i-video", bare) == pytest.approx({"FG-ARI": or_one(whole), "mBO": videos}, abs=1e-12)
    assert len({mean(single), or_one(single), or_one(whole)}) == 3
    assert by_picture != over_objects != videos


def test_uorf_by_loops() -> None:
    """The first view is given, the others are novel."""
    made, views = block(5), 3
    ratios = score_masks(PROTOCOLS["uorf"], made)
    found = ratios.values()
    for foreground, name in ((False, "ARI"), (True, "FG-ARI")):
        scored = [ari(*pair, foreground) for pair in pictures(made)]
        scored = [1.0 if value is None else value for value in scored]
        assert found[name] == pytest.approx(mean(scored[::views]), abs=1e-12)
        novel = [value for place, value in enumerate(scored) if place % views]
        assert found[f"NV-{name}"] == pytest.approx(mean(novel), abs=1e-12)
        assert ratios.per_scene()[f"NV-{name}"][1] == pytest.approx(mean(scored[views + 1 : 2 * views]), abs=1e-12)
    error = (made.reconstruction - made.image)[:, 1:].square().mean((2, 3, 4))
    assert found["NV-PSNR"] == pytest.approx(float((-10 * error.log10()).mean()))
    assert found["NV-SSIM"] is None  # pictures of 7 x 7 pixels
    alone = replace(block(5, views=1), reconstruction=None)
    assert {name for name, value in values("uorf", alone).items() if value is not None} == {"ARI", "FG-ARI"}


def test_lpips_stands_beside_psnr_where_weights_are_given() -> None:
    class Distance(Lpips):
        """Of the mean colours."""

        def __init__(self) -> None: ...

        def __call__(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
            return (first.mean((1, 2, 3)) - second.mean((1, 2, 3))).abs()

    made = block(5)
    found = score_masks(PROTOCOLS["uorf"], made, Distance()).values()
    apart = (made.reconstruction.mean((2, 3, 4)) - made.image.mean((2, 3, 4))).abs()
    assert found["NV-LPIPS"] == pytest.approx(float(apart[:, 1:].mean()))
    assert {name: value for name, value in found.items() if name != "NV-LPIPS"} == values("uorf", made)
    assert "LPIPS" not in score_masks(PROTOCOLS["clevrtex"], corners(128, 128, 40), Distance()).values()
    without = score_masks(PROTOCOLS["uorf"], replace(made, reconstruction=None), Distance()).values()
    assert without["NV-LPIPS"] is None


def test_ssim_of_larger_pictures() -> None:
    image = torch.rand(2, 2, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    segment = torch.full((2, 2, 12, 12), BACK, dtype=torch.uint8)
    made = MaskBlock(torch.ones(2, 2, 1, 12, 12), segment, torch.ones(2, 2, dtype=torch.bool), image.sqrt(), image)
    expected = structural_similarity(image.sqrt()[:, 1], image[:, 1]).mean()
    assert values("uorf", made)["NV-SSIM"] == pytest.approx(float(expected))


def corners(height: int, width: int, side: int) -> MaskBlock:
    """One picture: object 0 fills the middle square; its slot is right there and wrong all around."""
    top, left = (height - side) // 2, (width - side) // 2
    segment = torch.full((1, 1, height, width), BACK, dtype=torch.uint8)
    segment[..., top : top + side // 2, left : left + side] = 0
    layer = (segment == 0).long()
    inside = torch.zeros_like(layer)
    inside[..., top : top + side, left : left + side] = 1
    layer = torch.where(inside == 1, layer, 2)
    masks = torch.nn.functional.one_hot(layer, 3).movedim(-1, 2).float()
    image = torch.zeros(1, 1, 3, height, width).where(inside[:, :, None] == 1, 0.5)
    return MaskBlock(masks, segment, torch.ones(1, 1, dtype=torch.bool), torch.full_like(image, 0.1), image)


def test_clevrtex_cuts_the_middle() -> None:
    """Of 240 x 320 the middle 192 x 192 pixels, all of which are right; the error is .1 in each of 3 x 128 x 128."""
    made = corners(240, 320, 192)
    expected = {"mIoU": 1.0, "FG-ARI": 1.0, "MSE": pytest.approx(0.01 * 3 * 128**2, rel=1e-5)}
    assert values("clevrtex", made) == expected
    small = MaskBlock(
        made.layers[..., 24:216, 64:256][..., ::3, ::3], made.segment, made.view_mask, None, None
    )  # masks of 64 x 64 of that window
    assert values("clevrtex", small)["FG-ARI"] == 1.0
    assert values("clevrtex", small)["mIoU"] > 0.97
    assert values("clevrtex", small)["MSE"] is None
    wide = replace(corners(240, 320, 180), reconstruction=None)
    assert values("clevrtex", wide)["mIoU"] < 0.9  # its frame of wrong pixels is inside the window


def test_clevrtex_takes_128_pixels_as_they_are_and_no_fewer() -> None:
    whole = corners(128, 128, 64)
    found = values("clevrtex", whole)
    inner, frame = 64 * 32 / (128 * 128 - 64 * 32), (128 * 128 - 64 * 64) / (128 * 128 - 64 * 32)
    assert found["mIoU"] == pytest.approx((max(inner, frame) + 1) / 3)  # background, object, a superfluous layer
    with pytest.raises(UserError, match=r"clevrtex compares masks of 128x128 pixels.* truth has 96x128"):
        scored_window(PROTOCOLS["clevrtex"], 96, 128)
    with pytest.raises(UserError, match="reconstruction: pictures of 64x64 pixels, but 128x128"):
        values("clevrtex", replace(whole, reconstruction=whole.reconstruction[..., ::2, ::2]))


def test_coarse_masks_are_interpolated_before_the_largest_wins() -> None:
    segment = torch.full((1, 1, 4, 8), BACK, dtype=torch.uint8)
    segment[..., 4:] = 0
    coarse = torch.tensor([[0.9, 0.9, 0.0, 0.0], [0.1, 0.1, 1.0, 1.0]])[None, None, :, None].expand(-1, -1, -1, 2, -1)
    made = MaskBlock(coarse, segment, torch.ones(1, 1, dtype=torch.bool), None, None)
    assert values("mbo-i", made) == {"FG-ARI": 1.0, "mBO": 1.0}


def test_padded_views_never_enter() -> None:
    made = block(2)
    mask = made.view_mask.clone()
    mask[:, 2] = False
    cut = MaskBlock(made.layers[:, :2], made.segment[:, :2], mask[:, :2], made.reconstruction[:, :2], made.image[:, :2])
    for protocol in NAMED:
        if protocol.size is None:
            padded = replace(made, view_mask=mask)
            assert score_masks(protocol, padded).values() == pytest.approx(score_masks(protocol, cut).values())


def test_names() -> None:
    assert list(PROTOCOLS) == [protocol.name for protocol in PROTOCOLS.values()]
    assert next(iter(PROTOCOLS.values())) is OURS
    for name in PROTOCOLS:
        assert re.search(rf"\b{name}\b", score.__doc__)
        assert f"| `{name}` |" in PAGE
    with pytest.raises(UserError, match=r"no protocol 'ari'; there are ocloc, slot-attention, "):
        find_protocol("ari")


class Command:
    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, output: pytest.CaptureFixture[str]) -> None:
        self.folder, self._patch, self._output = folder, patch, output

    def __call__(self, *words: str) -> Any:
        self._patch.chdir(self.folder)
        self._patch.setattr(sys, "argv", ["viewslots", "score", "prediction.npz", *words, "--device", "cpu"])
        cli.main()
        found = self._output.readouterr()
        self.said = found.err.splitlines()
        return json.loads(found.out)

    def refused(self, *words: str) -> str:
        with pytest.raises(SystemExit) as stopped:
            self(*words)
        assert stopped.value.code == 1
        found = self._output.readouterr().err
        assert len(found.splitlines()) == 1
        return found


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize(
    "protocol", [protocol for protocol in NAMED if protocol.size is None], ids=lambda one: one.name
)
def test_the_command_says_what_it_did(command: Command, protocol: Any) -> None:
    made = block(1)
    colours_last = [values.movedim(2, -1).numpy() for values in (made.reconstruction, made.image)]
    np.savez(command.folder / "prediction.npz", layer_masks=made.layers.numpy(), reconstruction=colours_last[0])
    np.savez(command.folder / "truth.npz", segment=made.segment.numpy(), image=colours_last[1])
    found = command("truth.npz", "--protocol", protocol.name, "--out", "scores.json")
    assert found == json.loads((command.folder / "scores.json").read_text())
    assert found["protocol"]["name"] == protocol.name
    assert (found["protocol"]["contract"], found["protocol"]["unit"]) == (protocol.contract, protocol.unit)
    assert found["scores"] == pytest.approx(score_masks(protocol, made).values(), abs=1e-12)
    assert found["per_scene"]["mBO" if "mBO" in found["scores"] else "FG-ARI"][1] is not None
    assert found["mask_size"] == {"prediction": [7, 7], "truth": [7, 7], "compared": [7, 7]}
    assert (found["scenes"], found["views"]) == (4, 3)


def test_masks_of_another_size_have_the_shape_of_the_truth(command: Command) -> None:
    """Half the size is told; axes in another order, or masks of another window, are refused and not stretched."""
    rng = np.random.default_rng(5)
    np.savez(command.folder / "truth.npz", segment=rng.integers(0, 2, (2, 1, 8, 12), dtype=np.uint8))

    def save(*shape: int) -> None:
        np.savez(command.folder / "prediction.npz", layer_masks=rng.random((2, 1, *shape), dtype=np.float32))

    save(3, 4, 6)
    found = command("truth.npz", "--protocol", "mbo-i")
    assert found["mask_size"] == {"prediction": [4, 6], "truth": [8, 12], "compared": [8, 12]}
    assert command.said[0] == "masks of 4x6 pixels are compared at 8x12, by linear interpolation"
    for shape in ((8, 12, 3), (3, 12, 8), (3, 8, 8)):
        save(*shape)
        assert "have another shape than the 8x12 of the truth" in command.refused("truth.npz", "--protocol", "mbo-i")


def test_lpips_of_bytes_and_its_network_are_in_the_result(command: Command) -> None:
    rng = np.random.default_rng(3)
    image, shown = rng.integers(0, 256, (2, 1, 2, 32, 32, 3), dtype=np.uint8)
    masks, segment = rng.random((1, 2, 3, 32, 32), dtype=np.float32), rng.integers(0, 2, (1, 2, 32, 32), dtype=np.uint8)
    np.savez(command.folder / "prediction.npz", layer_masks=masks, reconstruction=shown)
    np.savez(command.folder / "truth.npz", segment=segment, image=image)
    draw = torch.Generator().manual_seed(0)
    weights = {name: torch.rand(size, generator=draw) / 100 for name, size in wanted("alex").items()}
    torch.save(weights, command.folder / "weights.pth")
    found = command("truth.npz", "--protocol", "uorf", "--lpips", "weights.pth")
    pair = [torch.from_numpy(one[0, 1:] / 255).float().movedim(-1, 1) for one in (shown, image)]
    assert found["lpips"] == "alex"
    assert found["scores"]["NV-LPIPS"] == pytest.approx(float(Lpips("alex", weights)(*pair)), rel=1e-5)
    assert command("truth.npz", "--protocol", "uorf")["lpips"] is None
    command("truth.npz", "--protocol", "mbo-i", "--lpips", "weights.pth")
    assert "--lpips: protocol mbo-i has no PSNR, so there is no LPIPS beside it" in command.said


def test_a_report_of_anybodys_masks(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    """A table for each protocol and truth, with the contract below; no result of ours is needed."""
    made = block(1)
    np.savez(command.folder / "prediction.npz", layer_masks=made.layers.numpy(), has_background=True)
    np.savez(command.folder / "truth.npz", segment=made.segment.numpy())
    mbo = command("truth.npz", "--protocol", "mbo-i", "--out", "results/mine.json")
    eight = command("truth.npz", "--out", "results/eight.json")
    (command.folder / "results" / "worse.json").write_text(json.dumps(mbo | {"scores": {"FG-ARI": 0.25, "mBO": None}}))
    report((command.folder / "results",), out=command.folder / "report")
    text = (command.folder / "report" / "report.md").read_text()
    assert "mbo-i, truth.npz, 3 views a scene" in text
    first = f"{mbo['scores']['FG-ARI']:.3f} | {mbo['scores']['mBO']:.3f}"
    assert f"| mine (prediction.npz, 4 scenes) | {first} |" in text
    assert "| worse (prediction.npz, 4 scenes) | 0.250 | N/A |" in text
    assert f"by the appendix's formulas (paper) | {eight['paper']['ARI-A']:.3f}" in text
    assert PROTOCOLS["mbo-i"].contract in text
    assert "<table" in (command.folder / "report" / "report.html").read_text()
    damages: list[dict[str, Any]] = [{"scenes": "x"}, {"scores": {"mBO": "1"}}, {"protocol": None}, {"prediction": 3}]
    for damage in [*damages, {"scores": [1]}, {"scores": {"mBO": float("nan")}}]:
        (command.folder / "bad.json").write_text(json.dumps(mbo | damage))
        with pytest.raises(UserError, match=r"bad\.json: damaged results of score|bad\.json.*NaN"):
            report((command.folder / "bad.json",), out=command.folder / "report")


def test_a_data_set_as_truth(command: Command) -> None:
    """Its first views, as many as were predicted; what does not fit it is wrong in the prediction."""
    arrays = disc_store(command.folder / "data").split("test1")
    segment = np.asarray(arrays["segment"])[:, :2]
    masks = (segment[:, :, None] == np.array([255, 0, 1, 2, 3], np.uint8)[:, None, None]).astype(np.uint8) * 255
    np.savez(command.folder / "prediction.npz", layer_masks=masks, has_background=True)
    found = command("data", "--split", "test1")
    assert found["protocol"]["name"] == "ocloc"
    assert found["paper"]["ARI-A"] == found["pooled"]["ARI-O"] == 1
    assert (found["scenes"], found["views"]) == (len(segment), 2)
    assert command("data", "--split", "test1", "--protocol", "slot-attention-video")["scores"] == {"FG-ARI": 1}
    assert "data: a data set of several splits; say --split and one of" in command.refused("data")
    assert "no split 'nowhere'" in command.refused("data", "--split", "nowhere")
    np.savez(command.folder / "prediction.npz", layer_masks=masks[:3], has_background=True)
    line = command.refused("data", "--split", "test1", "--protocol", "mbo-i")
    assert re.search(r"prediction.npz: layer_masks: has shape \(3, .*\[\d,2,L,h,w\], to fit the truth", line)
    np.savez(command.folder / "truth.npz", segment=segment)
    assert "--split is of a data set" in command.refused("truth.npz", "--split", "test1")


def test_a_data_set_with_fewer_views_of_some_scenes(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong answer in a view that is not there costs nothing."""
    arrays = disc_store(command.folder / "data").split("test1")
    segment = np.asarray(arrays["segment"])[:, :2]
    masks = (segment[:, :, None] == np.array([255, 0, 1, 2, 3], np.uint8)[:, None, None]).astype(np.float32)
    masks[0, 1] = masks[0, 1, [1, 2, 3, 4, 0]].mean(0)
    np.savez(command.folder / "prediction.npz", layer_masks=masks, has_background=True)
    words = ("data", "--split", "test1", "--protocol", "slot-attention-video")
    assert command(*words)["scores"]["FG-ARI"] < 1
    counts = np.full(len(segment), 2)
    counts[0] = 1
    monkeypatch.setattr(SplitArrays, "view_counts", counts)
    assert command(*words)["scores"]["FG-ARI"] == 1
    assert command(*words[:3])["paper"]["ARI-A"] == 1


def test_what_is_not_known_is_null_and_said(command: Command) -> None:
    made = block(1)
    np.savez(command.folder / "prediction.npz", layer_masks=made.layers.numpy(), layer_mask=np.zeros(2))
    np.savez(command.folder / "truth.npz", segment=made.segment.numpy())
    found = command("truth.npz", "--protocol", "uorf")["scores"]
    assert found["NV-PSNR"] is found["NV-SSIM"] is None
    assert found["NV-ARI"] is not None
    assert command.said == [
        "prediction.npz: not used: 'layer_mask'",
        "the prediction has no reconstruction, so scores of pictures are null",
        "the truth has no image, so scores of pictures are null",
    ]
    assert "no array has_background" in command.refused("truth.npz")
    assert "no protocol 'mbo'" in command.refused("truth.npz", "--protocol", "mbo")
