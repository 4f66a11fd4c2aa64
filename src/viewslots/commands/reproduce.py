"""reproduce."""

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from viewslots.errors import UserError
from viewslots.reproduce.tables import TABLES
from viewslots.terminal import Device, pick_device, print_json, say


def reproduce(
    table: Positional[Annotated[str, arg(metavar="{" + ",".join(TABLES) + "}")]],
    /,
    out: Path,
    scale: float = 1.0,
    short: bool = False,
    only: Annotated[tuple[str, ...], arg(metavar="ROW...", help_behavior_hint="(default: all rows)")] = (),
    seeds: int = 1,
    device: Device = "auto",
    workers: Annotated[
        int | None, arg(metavar="N", help_behavior_hint="(default: 1 on a CPU, on a GPU as many as its memory holds)")
    ] = None,
) -> None:
    """A table of the paper, or umbra's, from nothing: data, trainings, scores, figures, and a report beside the paper.

    However it was stopped, the same command goes on. DIR/report/report.html has the numbers, DIR/figures the pictures,
    DIR/logs what every part said.

    Args:
        table: table1 (several views), table2 (single view, test1 and test2), supplement (more objects, other numbers
            of views, estimated viewpoints), figures, or umbra (our own method on all sets of several views).
        out: Folder for everything. Tables in one folder share its data and trainings; umbra, which is scored on more
            scenes, needs its own.
        scale: Share of the published steps that every training takes; all schedules are squeezed with it. Below 0.01
            scenes become fewer too: a rehearsal.
        short: Our short recipes in place of the published schedules; only rows of table2 have one. --scale squeezes
            them as well.
        only: Rows to make now: METHOD/DATA, METHOD or DATA. The others may follow later in the same folder.
        seeds: Trainings of every row, with seeds 0, 1, ...
        device: Where to compute; auto takes a GPU if there is one.
        workers: Commands that run side by side.
    """
    from viewslots.reproduce.plan import Asked
    from viewslots.reproduce.runner import LOGS, reproduce_table

    if table not in TABLES:
        raise UserError(f"no table {table!r}; choose one of {', '.join(TABLES)}")
    asked = Asked(scale, short, seeds)
    outcome = reproduce_table(TABLES[table], asked, out, only, pick_device(device), workers)
    report = out / "report" / "report.html"
    print_json(
        {
            "report": report if "report" in outcome.done else None,
            "done": len(outcome.done),
            "failed": outcome.failed,
            "left_out": outcome.left_out,
        }
    )
    if outcome.signal:
        say("viewslots: stopped; the same command goes on")
    for name, code in outcome.failed.items():
        say(f"viewslots: {name} failed with exit code {code}; see {out / LOGS / name}.log")
    raise SystemExit(outcome.exit_code)
