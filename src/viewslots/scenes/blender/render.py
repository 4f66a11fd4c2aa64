"""Render a scene description with Blender's Cycles: the same JSON in and the same arrays out as `viewslots render`.

    python render.py SCENE.json --out FILE.npz [--samples 512] [--threads N]

A program of its own, for an environment with `bpy` 4.5 (Python 3.11): it imports nothing of viewslots but what a
tabletop description means (its reader, bodies and textures, without torch), and viewslots imports nothing of it. See
docs/blender.md.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

# The reader of tabletop descriptions, its bodies and textures are viewslots' own: plain Python and numpy.
sys.path.insert(1, str(Path(__file__).resolve().parents[3]))

# Blender and numpy come later, in `main`: arguments and description are judged first, on any Python.
from description import SceneError, read_scene

MOST = 2**24
"""Largest number of samples that Cycles takes."""


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        scene = read_scene(options.scene)
        _check_out(options.out)
        _check_blender()
        from passes import Quality, render

        started = time.perf_counter()
        with _quiet_stdout():
            quality = Quality(options.samples, options.bounces, truth=not options.no_truth)
            arrays = render(scene, quality, options.threads, options.seed)
        _save(options.out, arrays)
    except SceneError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    print(f"{len(scene.cameras)} pictures in {time.perf_counter() - started:.1f} s", file=sys.stderr)
    print(options.out)
    return 0


def _parser() -> argparse.ArgumentParser:
    def count(text: str) -> int:
        value = int(text)
        if not 1 <= value <= MOST:
            raise ValueError
        return value

    count.__name__ = f"count from 1 to {MOST}"
    parser = argparse.ArgumentParser(
        prog="render.py", description="Render a scene description with Blender (needs bpy 4.5, see docs/blender.md)."
    )
    parser.add_argument("scene", type=Path, metavar="SCENE.json", help="objects, lights and views")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.npz", help="image, segment, shapes, linear")
    parser.add_argument("--samples", type=count, default=512, help="light paths a pixel (default 512, as CLEVR)")
    parser.add_argument("--threads", type=count, default=0, help="processor cores to use (default: all)")
    parser.add_argument("--bounces", type=count, help="most bounces of a light path (default 12, 4 diffuse, 4 glossy)")
    parser.add_argument("--no-truth", action="store_true", help="the picture alone: image and linear")
    parser.add_argument("--seed", type=int, default=0, help="of the noise; view m uses seed + m (default 0)")
    return parser


def _check_out(out: Path) -> None:
    """Say before an hour of rendering what would be found after it."""
    if out.is_dir():
        raise SceneError(f"cannot write {out}: it is a folder")
    if not out.parent.is_dir():
        raise SceneError(f"cannot write {out}: there is no folder {out.parent}")
    if not os.access(out.parent, os.W_OK):
        raise SceneError(f"cannot write {out}: no permission to write in {out.parent}")


def _check_blender() -> None:
    try:
        import bpy
    except ImportError as error:
        reason = f"{sys.executable} has no usable bpy ({error})"
        raise SceneError(
            f"{reason}: run 'make blender-setup', use .venv-blender/bin/python; see docs/blender.md"
        ) from error
    if bpy.app.version[:2] != (4, 5):
        raise SceneError(f"bpy 4.5 is needed, not {bpy.app.version_string}: run 'make blender-setup'")


@contextmanager
def _quiet_stdout() -> Iterator[None]:
    """Blender reports every render on file descriptor 1, which belongs to our one line of result."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _save(out: Path, arrays: dict[str, Any]) -> None:
    """Whole or not at all: written beside its place, then moved there."""
    import numpy as np

    part = out.with_name(f"{out.name}.part{os.getpid()}")
    try:
        with part.open("wb") as file:
            np.savez_compressed(file, **arrays)
        part.replace(out)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise SceneError(f"cannot write {out}: {error.strerror or error}") from error


if __name__ == "__main__":
    sys.exit(main())
