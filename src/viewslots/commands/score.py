"""score."""

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from viewslots.terminal import Device, Progress, pick_device, print_json, say


def score(
    prediction: Positional[Annotated[Path, arg(metavar="PRED")]],
    truth: Positional[Annotated[Path, arg(metavar="TRUTH")]],
    /,
    out: Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="(default: standard output alone)")] = None,
    device: Device = "auto",
) -> None:
    """Score anybody's decompositions: the eight metrics of the paper from two .npz files, in both conventions.

    S scenes, M views, L layers, K = L - 1 objects (L without a background), G true objects. Layer 0 is the background.

    Args:
        prediction: layer_masks [S,M,L,H,W], has_background; if known complete_shapes [S,M,K,H,W], presence [S,K] and
            depth_order [S,M,K], larger is nearer. Masks and shapes as float 0..1 or u8.
        truth: segment [S,M,H,W] u8 (object index, 255 = background); if known shapes [S,M,G,H,W] u8 (complete alpha, 0
            if unused) and depth_order [S,M,G].
        out: JSON file to write as well.
        device: Where to compute; auto takes a GPU if there is one.
    """
    from viewslots.files import plain_errors, require_file, write_json
    from viewslots.metrics.arrays import ScorePair
    from viewslots.metrics.score import SceneScores, score_scenes

    if out is not None:
        require_file(out)
    parts: list[SceneScores] = []
    where = pick_device(device)
    with ScorePair(prediction, truth) as pair, Progress("scenes") as progress:
        for block in pair.blocks(where):
            parts.append(score_scenes(*block))
            progress(sum(len(part.values) for part in parts), pair.scenes)
    for remark in pair.remarks():
        say(remark)
    scores = SceneScores.concatenate(parts)
    result = {"paper": scores.paper(), "pooled": scores.pooled(), "per_scene": scores.per_scene()}
    result |= {"scenes": pair.scenes, "views": pair.views}
    if out is not None:
        with plain_errors("writing", out):
            write_json(out, result)
    print_json(result)
