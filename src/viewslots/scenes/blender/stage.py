"""What the stages of all worlds share: Blender's one scene, its camera, meshes and materials, and the masks."""

from typing import Any

import bpy
import numpy as np
from bodies import Mesh
from description import SENSOR, Film
from mathutils import Matrix

FARTHEST_SEEN = 2000.0
"""Metres from the camera."""


class Stage:
    """A scene built in Blender's one global scene, which is emptied first.

    A world's own stage adds its bodies (`bodies`, Blender objects in the description's order) and everything else.
    """

    bounces = (12, 4, 4)
    """Most bounces of a light path, of them diffuse and glossy: CLEVR's."""

    def __init__(self, film: Film, environment: tuple[float, float, float]) -> None:
        bpy.ops.wm.read_factory_settings(use_empty=True)
        self.film = film
        self.scene: Any = bpy.context.scene
        self.layer: Any = bpy.context.view_layer
        self.scene.world = _world(environment)
        self.bodies: list[Any] = []
        self.scenery: list[Any] = []
        self.lamps: list[Any] = []
        self.lamps_seen = False
        self.camera = self.add("camera", bpy.data.cameras.new("camera"))
        self.scene.camera = self.camera
        self.mask = _mask()

    def add(self, name: str, data: Any, pose: Matrix | None = None) -> Any:
        thing = bpy.data.objects.new(name, data)
        self.scene.collection.objects.link(thing)
        if pose is not None:
            thing.matrix_world = pose
        return thing

    def aim(self, pose: Matrix, film: Film) -> None:
        """A camera whose picture is the window itself: lens and shift put focal length and optical axis in place."""
        self.camera.matrix_world = pose
        data = self.camera.data
        data.sensor_fit, data.sensor_width = "HORIZONTAL", SENSOR
        data.lens = film.focal_px / film.width * SENSOR
        data.shift_x = (film.width / 2 - film.centre[0]) / film.width
        data.shift_y = (film.centre[1] - film.height / 2) / film.width
        data.clip_start, data.clip_end = 0.01, FARTHEST_SEEN

    def show_picture(self) -> None:
        self.layer.material_override = None
        self.scene.render.film_transparent = False
        _let_see(self.bodies + self.scenery, True)
        _let_see(self.lamps, self.lamps_seen)

    def show_visible(self, channels: list[int | None]) -> None:
        """Draw body k in pure red, green or blue (channels[k] = 0, 1, 2), unlit, and all else in black."""
        self._show_mask(self.bodies + self.scenery)
        for body, channel in zip(self.bodies, channels, strict=True):
            body.color = [float(channel == c) for c in range(3)] + [1.0]

    def show_alone(self, index: int) -> None:
        """Draw one body in white, unlit, and nothing else."""
        self._show_mask([self.bodies[index]])
        self.bodies[index].color = (1.0, 1.0, 1.0, 1.0)

    def _show_mask(self, seen: list[Any]) -> None:
        self.layer.material_override = self.mask
        self.scene.render.film_transparent = True
        for thing in self.scenery:
            thing.color = (0.0, 0.0, 0.0, 1.0)
        _let_see(self.bodies + self.scenery + self.lamps, False)
        _let_see(seen, True)


def _let_see(things: list[Any], seen: bool) -> None:
    for thing in things:
        thing.visible_camera = seen


def pose_of(right: Any, up: Any, back: Any, place: Any) -> Matrix:
    """Placed there with these axes: the pose of a camera (looks along -back) and of an area light (shines that way)."""
    pose = np.eye(4)
    pose[:3] = np.stack([np.array(axis, float) for axis in (right, up, back, place)], 1)
    return Matrix(pose.tolist())


def mesh_data(name: str, source: Mesh) -> Any:
    mesh = bpy.data.meshes.new(name)
    mesh.vertices.add(len(source.points))
    mesh.loops.add(source.faces.size)
    mesh.polygons.add(len(source.faces))
    mesh.vertices.foreach_set("co", source.points.astype(np.float32).ravel())
    mesh.loops.foreach_set("vertex_index", source.faces.astype(np.int32).ravel())
    mesh.polygons.foreach_set("loop_start", np.arange(0, source.faces.size, 3, dtype=np.int32))
    mesh.update(calc_edges=True)
    mesh.shade_smooth()
    mesh.normals_split_custom_set_from_vertices(source.normals.tolist())
    return mesh


def _world(radiance: tuple[float, float, float]) -> Any:
    world = bpy.data.worlds.new("environment")
    world.use_nodes = True
    world.node_tree.nodes["Background"].inputs["Color"].default_value = (*radiance, 1)
    return world


class Graph:
    """A material under construction: `node` adds a node with its inputs, values or other nodes' outputs."""

    def __init__(self, name: str) -> None:
        self.material = bpy.data.materials.new(name)
        self.material.use_nodes = True
        self.tree = self.material.node_tree
        self.tree.nodes.clear()

    def node(self, kind: str, inputs: dict[str | int, Any] | None = None, **settings: Any) -> Any:
        """Answers the node's first output."""
        node = self.tree.nodes.new(kind)
        for key, value in settings.items():
            setattr(node, key, value)
        for name, value in (inputs or {}).items():
            self.put(node.inputs[name], value)
        return node.outputs[0] if node.outputs else node

    def put(self, socket: Any, value: Any) -> None:
        if isinstance(value, bpy.types.NodeSocket):
            self.tree.links.new(value, socket)
        else:
            socket.default_value = value

    def surface(self, shader: Any) -> Any:
        self.node("ShaderNodeOutputMaterial", {"Surface": shader})
        return self.material


def _mask() -> Any:
    """Glow in the object's own colour."""
    graph = Graph("mask")
    colour = graph.tree.nodes.new("ShaderNodeObjectInfo").outputs["Color"]
    # The glow is only looked at: nothing is lit by it, so Cycles need not gather its triangles as lights.
    graph.material.cycles.emission_sampling = "NONE"
    return graph.surface(graph.node("ShaderNodeEmission", {"Color": colour}))
