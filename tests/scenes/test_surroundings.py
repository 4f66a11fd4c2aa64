"""Pictures do not depend on what goes on around the renderer, and odd scenes get pictures or one clear line."""

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from viewslots.errors import UserError
from viewslots.scenes.clevr.render import render_views
from viewslots.scenes.clevr.spec import Lights, Picture, Scene, SceneObject

BALL = SceneObject("sphere", 0.7, (0.8, 0.2, 0.2), "metal", (0.0, 0.0, 0.7), 0.0)
SCENE = Scene((BALL,), ((7.0, -6.0, 5.0),), picture=Picture(20, 20, 0, 20, 0, 20, focal=22.0), key=5)


def test_precision_that_training_chose_does_not_reach_the_masks() -> None:
    plain, _ = render_views([SCENE], 1)
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", torch.bfloat16):
            inside, _ = render_views([SCENE], 1)
    finally:
        torch.set_float32_matmul_precision("highest")
    for key in ("image", "segment", "shapes", "shadows", "overlap"):
        np.testing.assert_array_equal(getattr(plain, key), getattr(inside, key))


def test_beyond_the_ground_all_is_black() -> None:
    """A camera near the ground looks over the horizon in its upper half."""
    low = replace(SCENE, objects=(), cameras=((10.0, 0.0, 0.5),))
    pictures, linear = render_views([low], 0)
    assert linear[0, 0, :8].max() == 0
    assert linear[0, 0, 13:].min() > 0.01
    assert pictures.shapes.shape == (1, 1, 0, 20, 20)
    assert (pictures.segment == 255).all()


def test_a_lamp_straight_above_is_a_square_like_any_other() -> None:
    above = replace(SCENE, lights=Lights(back=(0.0, 0.0, 6.0)))
    beside = replace(SCENE, lights=Lights(back=(0.0, 1e-4, 6.0)))
    first, second = (render_views([scene], 1)[1] for scene in (above, beside))
    assert first.mean() == pytest.approx(second.mean(), rel=0.02)


def test_scenes_of_different_formats_are_refused() -> None:
    for other in (
        replace(SCENE, backdrop="sweep"),
        replace(SCENE, picture=Picture(20, 20, 0, 10, 0, 20)),
        replace(SCENE, cameras=SCENE.cameras * 2),
    ):
        with pytest.raises(UserError, match="must share"):
            render_views([SCENE, other], 1)
    with pytest.raises(UserError, match="1 objects, more than the 0 slots"):
        render_views([SCENE], 0)


def test_threads_elsewhere_keep_their_number() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        render_views([replace(SCENE, cameras=SCENE.cameras * 24, picture=Picture(64, 64, 0, 64, 0, 64))], 1)
        seen: list[int] = []
        thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert seen == [2]
    finally:
        torch.set_num_threads(before)


def test_a_file_that_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(UserError, match="no scene file"):
        Scene.load(tmp_path / "pipe.json")
