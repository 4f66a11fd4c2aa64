"""The command line. Results on stdout, logs on stderr; bad input exits 1, bad usage 2."""

import inspect
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import tyro

from viewslots import __version__
from viewslots.commands.bench import bench
from viewslots.commands.data import check_data, convert, export_data, import_data, is_hdf5, make_data, render
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


def reflowed(command: Callable[..., Any]) -> Callable[..., Any]:
    """With one line for each argument in its docstring: tyro shows line breaks as they are, and ours are for 120
    columns."""
    if command.__doc__ is not None:  # python -OO
        command.__doc__ = re.sub(r"\n {5,}(?=\S)", " ", inspect.cleandoc(command.__doc__))
    return command


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
COMMANDS: Commands = {name: reflowed(command) for name, command in {**LOOK, **DATA, **TRAIN, **JUDGE}.items()}

ABOUT = f"""Understand a scene from several pictures taken from unknown viewpoints.

• Look: {", ".join(LOOK)}.
• Data: {", ".join(DATA)}.
• Train: {", ".join(TRAIN)}.
• Judge: {", ".join(JUDGE)}.

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
                args=current_names(sys.argv[1:]),
            )
        sys.stdout.flush()
    except KeyboardInterrupt:
        say(f"viewslots: interrupted{what_comes_of_it(sys.argv[1:])}")
        raise SystemExit(130) from None
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # what is left would fail once more
        raise SystemExit(1) from None
    except Exception as error:
        line = plain_words(error, sys.argv[1:])
        if line is None:
            raise
        say(f"viewslots: {line}")
        raise SystemExit(1) from None


def current_names(words: Sequence[str]) -> list[str]:
    """`--careful` is the older name of `--starts`."""
    if words[:1] not in (["evaluate"], ["estimate-viewpoints"]):
        return list(words)
    return [re.sub("^--careful(?==|$)", "--starts", word) for word in words]


def what_comes_of_it(words: Sequence[str]) -> str:
    """What the same command does after an interruption, where there is something to tell."""
    command, *arguments = words or [""]
    if command in ("make-data", "import-data") or (command == "convert" and any(map(is_hdf5, arguments[:1]))):
        return "; the same command goes on where it stopped"
    return "; the same command begins anew" if command in ("convert", "export-data") else ""


def plain_words(error: Exception, words: Sequence[str] = ()) -> str | None:
    """One line for what a user or a machine can cause; None for a mistake of ours, which keeps its traceback."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.filename or 'output'}: {error.strerror or error}"
    torchs = type(error).__name__ == "OutOfMemoryError" or "DefaultCPUAllocator" in str(error)
    if isinstance(error, MemoryError) or torchs:
        return f"out of memory{what_takes_less(words)}"
    return None


def what_takes_less(words: Sequence[str]) -> str:
    """An option that saves memory, if the command has one."""
    command = COMMANDS.get(words[0]) if words else None
    batched = command is not None and "batch" in inspect.signature(command).parameters
    return "; try a smaller --batch" if batched else ""
