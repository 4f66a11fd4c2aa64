"""explore."""

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from viewslots.terminal import Device, pick_device, print_json, say


def explore(
    run: Positional[Annotated[str, arg(metavar="RUN")]] = "umbra-quick",
    /,
    data: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: scenes made on the spot)")] = None,
    port: int = 7860,
    host: str = "127.0.0.1",
    device: Device = "auto",
) -> None:
    """A web page on this machine: look at scenes, move the camera, switch objects off, mix two scenes.

    Args:
        run: A run folder, a saved model, or the name of a shipped one (umbra-quick, umbra, compact).
        data: A data set whose scenes to look at: those of test1 if there are some, or of valid.
        port: Where the page is found; 0 takes any port that is free.
        host: Who may see it: 127.0.0.1 is this machine alone. At another address the page asks for a token, which is
            part of the address that is printed.
        device: Where to compute; auto takes a GPU if there is one.
    """
    from viewslots.data.store import Store
    from viewslots.experiments import known_experiment
    from viewslots.explorer.opened import held_out, world_for
    from viewslots.explorer.serve import require_gradio, serve
    from viewslots.runs import HUB, run_preset
    from viewslots.viewpoints.scene import load

    require_gradio()
    reader = load(run, device=pick_device(device))
    _ = reader.scenes  # refuses methods whose scenes cannot be turned
    config = {} if run.startswith(HUB) else run_preset(run)
    planned = known_experiment(config.get("preset"))
    world = world_for(str(config.get("world") or (planned and planned.data)), reader.size)
    scenes = world if data is None else held_out(Store.open(data))

    def ready(address: str) -> None:
        print_json({"address": address})
        say(f"Open {address} in a browser; Ctrl-C ends it.")

    serve(reader, scenes, host, port, ready)
