"""score."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from viewslots.commands.evaluation import Weights
from viewslots.terminal import Device, Progress, pick_device, print_json, say

if TYPE_CHECKING:
    from viewslots.protocol.masks import Protocol


def score(
    prediction: Positional[Annotated[Path, arg(metavar="PRED")]],
    truth: Positional[Annotated[Path, arg(metavar="TRUTH")]],
    /,
    protocol: Annotated[str, arg(metavar="NAME")] = "ocloc",
    split: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="(default: none)")] = None,
    out: Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="(default: standard output alone)")] = None,
    device: Device = "auto",
    lpips: Weights = None,
) -> None:
    """Score anybody's decompositions from arrays: by the eight metrics of the paper, or as another paper scores masks.

    S scenes, M views, L layers, K = L - 1 objects (L without a background), G true objects. Layer 0 is the background.

    Args:
        prediction: .npz with layer_masks [S,M,L,H,W], has_background; if known complete_shapes [S,M,K,H,W],
            presence [S,K] and depth_order [S,M,K], larger is nearer. Masks and shapes as float 0..1 or u8. For scores
            of pictures, reconstruction [S,M,H,W,3].
        truth: .npz with segment [S,M,H,W] u8 (object index, 255 = background); if known shapes [S,M,G,H,W] u8 (complete
            alpha, 0 if unused) and depth_order [S,M,G]; image [S,M,H,W,3]. Or a data set, of which the first M views
            count.
        protocol: ocloc, slot-attention, slot-attention-video, mbo-i, mbo-i-video, mbo-i-objects, clevrtex or uorf. All
            but ocloc need layer_masks and segment alone.
        split: Of the data set, where the truth is one.
        out: JSON file to write as well.
        device: Where to compute; auto takes a GPU if there is one.
        lpips: Also LPIPS where a protocol has PSNR (uorf), with the weights in this file or folder; docs/evaluation.md
            says where to get them.
    """
    from viewslots.files import plain_errors, require_file, write_json
    from viewslots.protocol.results import SCORES
    from viewslots.protocols import OURS, find_protocol
    from viewslots.provenance import provenance

    asked = find_protocol(protocol)
    if lpips is not None and not asked.has_psnr:
        say(f"--lpips: protocol {asked.name} has no PSNR, so there is no LPIPS beside it")
    if out is not None:
        require_file(out)
    where = pick_device(device)
    result = {
        "format": SCORES,
        "format_version": 1,
        "prediction": prediction.name,
        "truth": truth.resolve().name,
        "split": split,
        "provenance": provenance(),
        "protocol": asdict(asked),
    }
    if asked is OURS:
        result |= _eight_metrics(prediction, truth, split, where)
    else:
        result |= _masks(asked, prediction, truth, split, where, lpips)
    if out is not None:
        with plain_errors("writing", out):
            write_json(out, result)
    print_json(result)


def _eight_metrics(prediction: Path, truth: Path, split: str | None, device: str) -> dict[str, Any]:
    from viewslots.metrics.arrays import ScorePair
    from viewslots.metrics.score import SceneScores, score_scenes
    from viewslots.types import concatenated

    parts: list[SceneScores] = []
    with ScorePair(prediction, truth, split) as pair, Progress("scenes") as progress:
        pair.require_identities("the eight metrics")
        for block in pair.blocks(device):
            parts.append(score_scenes(*block))
            progress(sum(len(part.values) for part in parts), pair.scenes)
    for remark in pair.remarks():
        say(remark)
    scores = concatenated(parts)
    found = {"paper": scores.paper(), "pooled": scores.pooled(), "per_scene": scores.per_scene()}
    return found | {"scenes": pair.scenes, "views": pair.views}


def _masks(
    protocol: "Protocol", prediction: Path, truth: Path, split: str | None, device: str, weights: Path | None
) -> dict[str, Any]:
    from viewslots.metrics.arrays import MASKS_ALONE, MASKS_AND_PICTURES, ScorePair
    from viewslots.metrics.extras import SceneRatios
    from viewslots.metrics.lpips import find_lpips
    from viewslots.protocol.masks import require_shape, score_masks, scored_window

    parts: list[SceneRatios] = []
    wanted = MASKS_AND_PICTURES if protocol.has_pictures else MASKS_ALONE
    with ScorePair(prediction, truth, split, wanted) as pair, Progress("scenes") as progress:
        if protocol.unit == "scene":
            pair.require_identities(f"--protocol {protocol.name}")
        window, done = scored_window(protocol, *pair.truth_size), 0
        if remark := require_shape(pair.mask_size, pair.truth_size, window):
            say(remark)
        compared = (window.height, window.width)
        lpips = find_lpips(weights, device, compared, say) if protocol.has_psnr else None
        for block in pair.mask_blocks(device):
            parts.append(score_masks(protocol, block, lpips))
            done += len(block.segment)
            progress(done, pair.scenes)
    for remark in pair.remarks():
        say(remark)
    scores = SceneRatios.concatenate(parts)
    sizes = {"prediction": pair.mask_size, "truth": pair.truth_size, "compared": compared}
    return {
        "scores": scores.values(),
        "per_scene": scores.per_scene(),
        "mask_size": sizes,
        "lpips": None if lpips is None else lpips.network,
        "scenes": pair.scenes,
        "views": pair.views,
    }
