"""Poses and intrinsics against the pictures themselves, and what batches say of cameras against trigonometry."""

import math
from dataclasses import replace

import numpy as np
import pytest
from fake_world import FakeWorld, FullWorld

from viewslots.data.dataset import SceneDataset
from viewslots.data.presets import data_preset
from viewslots.data.store import SplitArrays
from viewslots.data.views import FirstViews, RandomViews
from viewslots.errors import UserError
from viewslots.scenes.clevr.render import render_views
from viewslots.scenes.clevr.spec import Picture, Scene, SceneObject
from viewslots.scenes.vectors import camera_poses
from viewslots.types import Pictures


@pytest.fixture(scope="module")
def drawn() -> tuple[list[Scene], Pictures]:
    world = data_preset("clevr-m3").world(None)
    scenes = [world.sample(4, "train", index) for index in range(2)]
    return scenes, world.render(scenes, world.slots("train"))


def projected(point: tuple[float, float, float], pose: np.ndarray, intrinsics: np.ndarray) -> tuple[float, float]:
    """Row and column, as the manual has it."""
    x, y, z = pose[:3, :3].astype(float).T @ (np.array(point) - pose[:3, 3])
    fx, fy, cx, cy = intrinsics.astype(float)
    assert z < 0, "before the camera"
    return cy - fy * y / -z, cx + fx * x / -z


def test_objects_are_where_pose_and_intrinsics_say(drawn: tuple[list[Scene], Pictures]) -> None:
    """The centre of an object lies in the middle of its complete shape, wherever that is wholly in the picture."""
    scenes, pictures = drawn
    compared = 0
    for s, scene in enumerate(scenes):
        for view in range(10):
            for k, body in enumerate(scene.objects):
                shape = pictures.shapes[s, view, k] >= 128
                if not shape.any() or shape[[0, -1]].any() or shape[:, [0, -1]].any():
                    continue
                rows, columns = np.nonzero(shape)
                row, column = projected(body.location, pictures.pose[s, view], pictures.intrinsics[s, view])
                assert abs(row - (rows.mean() + 0.5)) < 1.2
                assert abs(column - (columns.mean() + 0.5)) < 0.6
                compared += 1
    assert compared > 40


def test_nearer_along_the_axis_is_nearer(drawn: tuple[list[Scene], Pictures]) -> None:
    scenes, pictures = drawn
    for s, scene in enumerate(scenes):
        for view in range(10):
            for k, body in enumerate(scene.objects):
                distance = np.linalg.norm(np.array(body.location) - pictures.pose[s, view, :3, 3])
                assert -pictures.depth_order[s, view, k] == pytest.approx(distance, rel=1e-5)


def test_poses_stand_at_the_camera_and_look_at_the_origin(drawn: tuple[list[Scene], Pictures]) -> None:
    _, pictures = drawn
    np.testing.assert_array_equal(pictures.pose[..., :3, 3], pictures.camera)
    for pose in pictures.pose.reshape(-1, 4, 4).astype(float):
        np.testing.assert_allclose(pose[:3, :3] @ pose[:3, :3].T, np.eye(3), atol=1e-6)
        assert np.linalg.det(pose[:3, :3]) == pytest.approx(1, abs=1e-6)
        np.testing.assert_allclose(pose[:3, 2], pose[:3, 3] / np.linalg.norm(pose[:3, 3]), atol=1e-6)
        assert pose[2, 0] == 0, "its right axis is level"
        assert pose[2, 1] > 0, "it stands upright"
        np.testing.assert_array_equal(pose[3], [0, 0, 0, 1])


def test_a_camera_straight_above() -> None:
    pose = camera_poses(np.array([[[0.0, 0.0, 5.0]]]))[0, 0]
    np.testing.assert_array_equal(pose, [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 5], [0, 0, 0, 1]])


@pytest.mark.parametrize("window", [(0, 80, 0, 108), (10, 50, 30, 90)])
def test_intrinsics_follow_the_window(window: tuple[int, int, int, int]) -> None:
    """A small ball anywhere is found where it should be, whatever part of the full picture is kept."""
    up, down, left, right = window
    ball = SceneObject("sphere", 0.3, (1, 0, 0), "rubber", (1.5, 0.5, 0.3), 0.0)
    scene = Scene((ball,), ((7.0, -6.0, 5.0),), picture=Picture(108, 80, up, down, left, right))
    pictures, _ = render_views([scene], 1)
    rows, columns = np.nonzero(pictures.segment[0, 0] == 0)
    row, column = projected(ball.location, pictures.pose[0, 0], pictures.intrinsics[0, 0])
    assert (row, column) == (pytest.approx(rows.mean() + 0.5, abs=0.4), pytest.approx(columns.mean() + 0.5, abs=0.4))


def angles(direction: np.ndarray, distance: float) -> list[float]:
    x, y, z = map(float, direction)
    azimuth, elevation = math.atan2(y, x), math.atan2(z, math.hypot(x, y))
    return [math.cos(azimuth), math.sin(azimuth), math.cos(elevation), math.sin(elevation), distance]


@pytest.mark.parametrize("with_pose", [True, False])
def test_batches_say_where_cameras_stand(drawn: tuple[list[Scene], Pictures], with_pose: bool) -> None:
    _, pictures = drawn
    split = SplitArrays.from_pictures("train", pictures)
    if not with_pose:
        arrays = {key: array for key, array in split.arrays.items() if key != "pose"}
        split = SplitArrays("train", split.size, arrays)
    choice = RandomViews(2, 5, seed=3)
    batch = SceneDataset(split, views=choice, camera=True).batch([1, 0])
    assert batch.camera.shape == (*batch.view_mask.shape, 5)
    for place, scene in enumerate((1, 0)):
        for slot, view in enumerate(choice.choose(scene, 10)):
            position = pictures.camera[scene, view]
            expected = angles(position, float(np.linalg.norm(position)))
            np.testing.assert_allclose(batch.camera[place, slot], expected, atol=1e-5)
        assert not batch.camera[place][~batch.view_mask[place]].any()
    assert SceneDataset(split).batch([0]).camera is None


def aimed(position: np.ndarray) -> np.ndarray:
    """A pose at `position` whose camera looks at the origin, not from straight above."""
    back = position / np.linalg.norm(position)
    right = np.cross([0.0, 0.0, 1.0], back)
    right /= np.linalg.norm(right)
    pose = np.eye(4)
    pose[:3] = np.stack([right, np.cross(back, right), back, position], 1)
    return pose


def test_a_pose_that_looks_at_the_origin() -> None:
    world = FullWorld()
    pictures = world.render([world.sample(1, "train", 2)], 3)
    places = np.array([[3.0, 0.0, 4.0], [0.0, -3.0, 4.0], [-2.0, 1.0, 2.0]])
    pose = np.stack([aimed(place) for place in places])[None].astype(np.float32)
    split = SplitArrays.from_pictures("train", replace(pictures, pose=pose))
    camera = SceneDataset(split, camera=True).batch([0]).camera
    for view, place in enumerate(places):
        np.testing.assert_allclose(camera[0, view], angles(place, float(np.linalg.norm(place))), atol=1e-6)


def test_a_pose_that_looks_elsewhere_is_refused() -> None:
    """Azimuth, elevation and distance would be the same for cameras in different places."""
    world = FullWorld()
    pictures = world.render([world.sample(1, "train", 2)], 3)
    down = np.repeat(np.eye(4, dtype=np.float32)[None, None], 3, 1)
    down[0, :, :3, 3] = [[3, 0, 4], [0, 3, 4], [-3, 0, 4]]
    split = SplitArrays.from_pictures("train", replace(pictures, pose=down))
    assert SceneDataset(split).batch([0]).camera is None
    with pytest.raises(UserError, match="scene 0: a camera does not look at the origin"):
        SceneDataset(split, camera=True)


def test_unknown_cameras_are_one_clear_line() -> None:
    world = FakeWorld()
    pictures = world.render([world.sample(1, "train", 2)], 3)
    split = SplitArrays.from_pictures("train", pictures)
    assert SceneDataset(split, camera=True, views=FirstViews(1)).batch([0]).camera is not None
    none = {key: array for key, array in split.arrays.items() if key != "camera"}
    flat = none | {"camera": np.zeros_like(split["camera"])}
    for arrays in (none, flat):
        with pytest.raises(UserError, match="split train: its cameras are not known"):
            SceneDataset(SplitArrays("train", split.size, arrays), camera=True)
