"""Times of the README's first commands as a newcomer meets them: first sign of life, and the end, in a pipe.

    python benchmarks/first_minutes.py OUT.json [WORK]

Each runs alone, as its own process, in the folder WORK (default: a new one). The machine's load stands beside it.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from viewslots.files import write_json
from viewslots.provenance import provenance

PICTURES = [f"folders/test1/0000/{view:03d}.png" for view in range(4)]
SMALL = ["--train-scenes", "8", "--valid-scenes", "4", "--test-scenes", "20"]
EVALUATE = ["evaluate", "umbra-quick", "--data", "data", "--repeats", "1"]
COMMANDS: dict[str, list[str]] = {
    "help": ["--help"],
    "demo": ["demo", "--out", "demo"],
    "make-data": ["make-data", "clevr-m1", "--out", "data", *SMALL],
    "export-data": ["export-data", "data", "--out", "folders"],
    "decompose": ["decompose", "umbra-quick", *PICTURES, "--out", "answer"],
    "figures": ["figures", "umbra-quick", "--data", "data", "--out", "figures"],
    "evaluate, plain": [*EVALUATE, "--starts", "0", "--out", "plain.json"],
    "evaluate, searched": [*EVALUATE, "--out", "searched.json"],
}


def timed(words: list[str], folder: Path) -> dict[str, Any]:
    """Seconds to the first byte on stdout or stderr, and to the end."""
    before, begun = os.getloadavg()[0], time.monotonic()
    command = [sys.executable, "-m", "viewslots", *words]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    first = os.read(process.stdout.fileno(), 1)
    sign = time.monotonic() - begun
    process.stdout.read()
    code = process.wait()
    assert first, f"{words[0]} said nothing"
    assert code == 0, f"{words[0]} ended with {code}"
    return {
        "command": "viewslots " + " ".join(words),
        "first_sign_seconds": round(sign, 1),
        "total_seconds": round(time.monotonic() - begun, 1),
        "load_before": round(before, 2),
        "load_after": round(os.getloadavg()[0], 2),
    }


def main(out: str, work: str | None = None) -> None:
    folder = Path(work or tempfile.mkdtemp())
    found = {name: timed(words, folder) for name, words in COMMANDS.items()}
    about = {
        "what": "each command once, one after the other, output to a pipe",
        "threads": os.environ.get("OMP_NUM_THREADS", "all"),
    }
    origin = provenance() | {"command": "python benchmarks/first_minutes.py OUT.json"}
    write_json(Path(out), {"provenance": origin} | about | {"commands": found})
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
