"""The command line. Results on stdout, logs on stderr; bad input exits 1, bad usage 2."""

import os
import sys
from collections.abc import Callable
from typing import Any

import tyro

from viewslots import __version__
from viewslots.commands.bench import bench
from viewslots.commands.data import check_data, convert, export_data, import_data, make_data, render
from viewslots.commands.decompose import decompose
from viewslots.commands.demo import demo
from viewslots.commands.evaluation import estimate_viewpoints, evaluate, report
from viewslots.commands.explore import explore
from viewslots.commands.figures import figures
from viewslots.commands.info import info
from viewslots.commands.reproduce import reproduce
from viewslots.commands.score import score
from viewslots.commands.training import train
from viewslots.errors import UserError
from viewslots.terminal import lasting_streams, loading_sign, say

Commands = dict[str, Callable[..., Any]]
LOOK: Commands = {"demo": demo, "decompose": decompose, "explore": explore, "figures": figures}
DATA: Commands = {
    "make-data": make_data,
    "import-data": import_data,
    "export-data": export_data,
    "check-data": check_data,
    "convert": convert,
    "render": render,
}
TRAIN: Commands = {"train": train, "info": info, "bench": bench}
JUDGE: Commands = {
    "evaluate": evaluate,
    "estimate-viewpoints": estimate_viewpoints,
    "score": score,
    "report": report,
    "reproduce": reproduce,
}
COMMANDS: Commands = {**LOOK, **DATA, **TRAIN, **JUDGE}

ABOUT = f"""Understand a scene from several pictures taken from unknown viewpoints.

Look: {", ".join(LOOK)}.
Data: {", ".join(DATA)}.
Train: {", ".join(TRAIN)}.
Judge: {", ".join(JUDGE)}.

For example: viewslots decompose umbra-quick a.jpg b.jpg c.jpg --out answer"""


def main() -> None:
    """Entry point of the `viewslots` command."""
    lasting_streams()
    if "--version" in sys.argv[1:]:
        print(f"viewslots {__version__}")
        return
    try:
        with loading_sign():
            tyro.extras.subcommand_cli_from_dict(
                COMMANDS,
                prog="viewslots",
                description=ABOUT,
            )
        sys.stdout.flush()
    except KeyboardInterrupt:
        resumes = sys.argv[1:2] in (["make-data"], ["import-data"], ["convert"])
        say("viewslots: interrupted" + ("; the same command goes on where it stopped" if resumes else ""))
        raise SystemExit(130) from None
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # what is left would fail once more
        raise SystemExit(1) from None
    except Exception as error:
        line = plain_words(error)
        if line is None:
            raise
        say(f"viewslots: {line}")
        raise SystemExit(1) from None


def plain_words(error: Exception) -> str | None:
    """One line for what a user or a machine can cause; None for a mistake of ours, which keeps its traceback."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.filename or 'output'}: {error.strerror or error}"
    torchs = type(error).__name__ == "OutOfMemoryError" or "DefaultCPUAllocator" in str(error)
    if isinstance(error, MemoryError) or torchs:
        return "out of memory; try a smaller --batch"
    return None
