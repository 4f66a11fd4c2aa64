"""Results of benchmarks/fine_tuning.sh as one JSON, and a table on standard output.

python benchmarks/fine_tuning.py WORK
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from viewslots.provenance import provenance

COLUMNS = ("ARI-A", "AMI-A", "ARI-O", "AMI-O", "IoU", "F1", "OCA", "OOA")


def row(file: Path) -> dict[str, Any]:
    """One model: what it was given, its scores, and what its validation said."""
    result = json.loads(file.read_text())
    training = result.get("training") or {}
    way, _, scenes = file.stem.rpartition("-") if file.stem[-1].isdigit() else (file.stem, "", "0")
    found = {"way": way, "scenes": int(scenes), "scores": scores(result)}
    if way != "zero-shot":
        names = ("steps", "init", "init_steps", "scored_step", "seconds", "init_seconds", "seed")
        found |= {"training": {name: training.get(name) for name in names}}
        found["validation_loss"] = validation_losses(file.parent.parent / "runs" / file.stem / "metrics.jsonl")
    return found


def scores(result: dict[str, Any]) -> dict[str, Any]:
    return {name: result["pooled"].get(name) for name in COLUMNS}


def validation_losses(metrics: Path) -> dict[int, float]:
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    return {one["step"]: one["loss"] for one in rows if one["kind"] == "valid"}


def seconds_of(log: Path) -> dict[str, int]:
    """What was done by when, since the start."""
    lines = re.findall(r"^(\d+) s: (.*?)(?:: 0)?$", log.read_text(), re.MULTILINE)
    return {words: int(second) for second, words in lines}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--command", default="")
    given = parser.parse_args()
    rows = [row(file) for file in (given.work / "results").glob("*.json")]
    rows.sort(key=lambda one: (one["scenes"], one["way"]))
    facts = {
        "question": "How does ARI-O grow with scenes of one's own, without truth?",
        "command": given.command.strip(),
        "environment": provenance(),
        "world": "benchmarks/another_world.py: full circle, other colours, lower and nearer camera",
        "answers": "searched as by default, M = 4, one answer a scene, pooled, test1",
        "seconds": seconds_of(given.work / "logs" / "progress.log"),
        "rows": rows,
    }
    (given.work / "fine_tuning.json").write_text(json.dumps(facts, indent=1) + "\n")
    for one in rows:
        values = " ".join(f"{name} {value['mean']:.3f}" for name, value in one["scores"].items() if value)
        print(f"{one['way']:>10} {one['scenes']:>5}  {values}")


if __name__ == "__main__":
    main()
