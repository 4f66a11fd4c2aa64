"""What a number needs beside it: the command, the commit, the machine."""

import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from viewslots import __version__


def provenance() -> dict[str, Any]:
    """Command, version, commit (of a source checkout) and hardware."""
    return {
        "command": shlex.join(["viewslots", *sys.argv[1:]]),
        "viewslots": __version__,
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cpu": cpu_name(),
        "cores": cores(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def commit() -> str | None:
    """Commit of the checkout this file lies in, marked when it differs.

    Elsewhere (an installed package, a copy without its history) the variable VIEWSLOTS_COMMIT may tell it.
    """

    def git(*words: str) -> str:
        here = Path(__file__).parent
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)  # not merely inside somebody's repository
        return git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("VIEWSLOTS_COMMIT")


def cpu_name() -> str:
    """The processor's own name where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
