"""bench."""

from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from viewslots.errors import UserError
from viewslots.terminal import Device, pick_device, print_json


def bench(
    what: Positional[Literal["scenes", "train", "infer", "metrics", "import", "feed"]],
    experiments: Positional[
        Annotated[tuple[str, ...], arg(metavar="[EXPERIMENT...]", help_behavior_hint="(default: one of each method)")]
    ] = (),
    /,
    out: Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="(default: standard output alone)")] = None,
    device: Device = "auto",
    seconds: float = 10.0,
    seed: int = 0,
    data: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: 983 MB of random pictures)")] = None,
) -> None:
    """Measure speed, side by side in one run, as JSON with the hardware and the commit.

    Args:
        what: scenes: pictures a second of the renderer; train: steps a second, plain and fast; infer: seconds to
            load a model and to decompose a scene; metrics: seconds to score 500 scenes, beside scikit-learn; import:
            pictures a second from files to a data set; feed: batches a second that training reads, from memory and
            from a cold disk.
        experiments: Of train: those to measure, such as slot-attention/dsprites.
        out: File to write as well.
        device: What to measure.
        seconds: Least time for each figure; of the scenes, the slowest needs a minute on a CPU whatever you say.
        seed: Seed of the scenes.
        data: Of feed: the data set to read, whose train split is dropped from the system's cache several times.
    """
    from viewslots.bench.feed import bench_feed
    from viewslots.bench.imports import bench_import
    from viewslots.bench.infer import bench_infer
    from viewslots.bench.metrics import bench_metrics
    from viewslots.bench.scenes import bench_scenes
    from viewslots.bench.train import bench_train
    from viewslots.files import require_file, write_json

    if out is not None:
        require_file(out)
    if experiments and what != "train":
        raise UserError(f"bench {what} takes no experiments; leave out {' '.join(experiments)}")
    if data is not None and what != "feed":
        raise UserError(f"bench {what} takes no --data")
    where = pick_device(device)
    if what == "feed":
        result = bench_feed(seconds, seed, data)
    elif what == "train":
        result = bench_train(where, seconds, seed, experiments)
    else:
        others = {"scenes": bench_scenes, "infer": bench_infer, "metrics": bench_metrics, "import": bench_import}
        result = others[what](where, seconds, seed)
    if out is not None:
        write_json(out, result)
    print_json(result)
