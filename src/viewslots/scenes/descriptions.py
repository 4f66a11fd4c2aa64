"""A description of either kind, told apart by its field `world`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from viewslots.scenes.clevr.render import render_views
from viewslots.scenes.clevr.spec import Scene, load_json
from viewslots.scenes.tabletop.expose import render_tables
from viewslots.scenes.tabletop.table_scene import WORLD, TableScene
from viewslots.types import OnProgress, Pictures


def load_scene(path: Path, line: int | None = None) -> Scene | TableScene:
    """The scene of a JSON file, or of a line of it: of a tabletop where it says so, else of CLEVR."""

    def read(data: Any) -> Scene | TableScene:
        is_table = isinstance(data, Mapping) and data.get("world") == WORLD
        return TableScene.from_dict(data) if is_table else Scene.from_dict(data)

    return load_json(path, read, line)


def render_any(
    scene: Scene | TableScene, device: str, quality: str, progress: OnProgress
) -> tuple[Pictures, np.ndarray]:
    """Pictures of one scene and their linear radiance."""
    slots = len(scene.objects)
    if isinstance(scene, TableScene):
        return render_tables([scene], slots, device, quality, progress)
    return render_views([scene], slots, device, quality, progress)
