"""What pictures that a model knows look like, and how surely it notices others.

python tools/read_scenes.py src/viewslots/shipped/compact compact.npz cuda
python tools/read_scenes.py src/viewslots/shipped/compact own.npz cpu "tables=FILE.h5"
python tools/measure_typical.py src/viewslots/shipped/compact docs/results/familiarity/compact.json compact.npz own.npz

Writes typical.json beside the weights, and a report: how many scenes are refused, of new ones of the known kind (false
alarms), and of others. Scenes "fit" give mean and covariance of the statistics, scenes "limits" the limits, half of the
false alarms for each of the two tests; scenes "new" had no say in either.
"""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from read_scenes import KNOWN

from viewslots.files import sha256, write_json
from viewslots.provenance import provenance
from viewslots.runs import run_preset
from viewslots.viewpoints.familiarity import MOST_VIEWPOINTS, RATE, TYPICAL_FILE, Typical, read_typical, whitening_of

BODIES = "generated pictures of CLEVR's spheres, cubes and cylinders on a grey floor"
DATA = {"dsprites": "generated pictures of squares, ellipses and hearts, each of one colour, before grey"}
"""What the pictures of a preset are, in words, where they are not of `BODIES`."""
RATES = (RATE, "0.05")
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
RIDGE = 1e-3
"""Share of each variance that is added to it, so that no direction without spread decides alone."""
Found = dict[str, np.ndarray]


def calibrated(found: Found, data: str) -> dict[str, Any]:
    """What typical.json holds; `data`: what the pictures are, in words."""
    mean, covariance = gaussian(found["fit/statistics"])
    far = (torch.from_numpy(found["limits/statistics"]) - mean) @ whitening_of(covariance)
    worst = {
        "distance": far.norm(dim=-1).amax(1).numpy(),
        "error": found["limits/errors"].max(1),
    }
    errors = np.concatenate([found["fit/errors"], found["limits/errors"]])
    return {
        "data": data,
        "errors": {str(share): float(np.quantile(errors, share)) for share in QUANTILES},
        "statistics": {"mean": mean.tolist(), "covariance": covariance.tolist()},
        "viewpoints": viewpoints(found["fit/views"]),
        "limits": {
            rate: {name: float(np.quantile(values, 1 - float(rate) / 2)) for name, values in worst.items()}
            for rate in RATES
        },
    }


def gaussian(values: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    known = torch.from_numpy(values).double().flatten(0, 1)
    covariance = torch.atleast_2d(torch.cov(known.T))
    return known.mean(0), covariance + RIDGE * torch.diag(covariance.diagonal())


def viewpoints(codes: np.ndarray) -> dict[str, Any]:
    """One half of the scenes gives mean and covariance, the other half the limit."""
    half = len(codes) // 2
    mean, covariance = gaussian(codes[:half])
    far = ((torch.from_numpy(codes[half:]).double() - mean) @ whitening_of(covariance)).norm(dim=-1)
    limit = float(far.flatten().quantile(MOST_VIEWPOINTS))
    return {"mean": mean.tolist(), "covariance": covariance.tolist(), "limit": limit, "scenes": len(codes)}


def refusals(typical: Typical, statistics: np.ndarray, errors: np.ndarray) -> dict[str, Any]:
    """Shares of scenes of which a picture is beyond a limit, by the rate of false alarms that was asked for."""
    far, bad = typical.lengths(torch.from_numpy(statistics)).amax(1).numpy(), errors.max(1)
    row: dict[str, Any] = {"scenes": len(errors), "pictures_each": errors.shape[1]}
    for rate in RATES:
        limits = typical.limits[rate]
        by_distance, by_error = far > limits.distance, bad > limits.error
        tests = {"refused": by_distance | by_error, "by_distance": by_distance, "by_error": by_error}
        row[rate] = {name: float(np.mean(hits)) for name, hits in tests.items()}
    return row


def main(folder: Path, out: Path, *files: str) -> None:
    found: Found = {}
    read = []
    for file in files:
        with np.load(file) as opened:
            read.append(json.loads(str(opened["about"])))
            found |= {name: opened[name] for name in opened.files if name != "about"}
    command = ["python", "tools/measure_typical.py", str(folder), str(out), *(Path(file).name for file in files)]
    scenes = {name: {"seed": seed, "scenes": len(found[f"{name}/errors"])} for name, (seed, _) in KNOWN.items()}
    about = {
        "preset": str(run_preset(folder)["world"]),
        "scenes": scenes,
        "weights_sha256": sha256(folder / "model.safetensors"),
        "read": read,
        "provenance": provenance() | {"command": shlex.join(command)},
    }
    write_json(folder / TYPICAL_FILE, calibrated(found, DATA.get(about["preset"], BODIES)) | about)
    typical = read_typical(folder)
    assert typical is not None  # just written
    kinds = [name.removesuffix("/errors") for name in found if name.endswith("/errors")]
    rows = {
        name: refusals(typical, found[f"{name}/statistics"], found[f"{name}/errors"])
        for name in kinds
        if name not in ("fit", "limits")
    }
    for name, row in rows.items():
        print(f"{name:24}", *(f"{rate}: {row[rate]['refused']:.3f}" for rate in RATES), file=sys.stderr)
    write_json(out, {"model": folder.name, "kinds": rows} | about)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
