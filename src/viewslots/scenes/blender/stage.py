"""A scene description as Blender data: bodies, materials, lights and camera of CLEVR."""

import math
from typing import Any

import bodies
import bpy
import numpy as np
from description import SENSOR, Body, Scene, Vector
from mathutils import Matrix

LIGHT_SIZE = {"Lamp_Key": 0.5, "Lamp_Fill": 0.5, "Lamp_Back": 1.0}
"""Edge of the square, metres."""
LIGHT_POWER = {"Lamp_Key": 25 * math.pi, "Lamp_Fill": 7.5 * math.pi, "Lamp_Back": 12.5 * math.pi}
"""Watts; the radiance is power / (pi * size^2)."""
LIGHT_COLOUR = {"Lamp_Key": (1, 0.93231, 0.81666), "Lamp_Fill": (0.76167, 0.81772, 1), "Lamp_Back": (1, 1, 1)}

SUN_TOWARDS = (0.41450, -0.19458, 0.88901)
SUN_IRRADIANCE = 0.45
SUN_DIAMETER = 0.19934
"""Radians."""


class Stage:
    """The scene built in Blender's one global scene; `bodies` are Blender objects in the description's order."""

    def __init__(self, scene: Scene) -> None:
        bpy.ops.wm.read_factory_settings(use_empty=True)
        self.film = scene.film
        self.scene: Any = bpy.context.scene
        self.layer: Any = bpy.context.view_layer
        self.scene.world = _black_world()
        self.bodies = _add_bodies(self.scene, scene.bodies)
        ground = _mesh("ground", bodies.plane() if scene.backdrop == "plane" else bodies.sweep())
        ground.materials.append(_ground())
        self.ground = _add(self.scene, "ground", ground)
        _add_lights(self.scene, scene.lights)
        self.camera = _add_camera(self.scene, scene)
        self.lit, self.seen, self.complete = None, _mask(see_through=False), _mask(see_through=True)

    def look_from(self, place: Vector) -> None:
        self.camera.matrix_world = look_at_origin(place)

    def show_truth(self, material: Any, channels: list[int | None]) -> None:
        """Draw body k in pure red, green or blue (channels[k] = 0, 1, 2) or black (None), unlit, without the ground."""
        self.layer.material_override = material
        self.ground.hide_render = material is not None
        for body, channel in zip(self.bodies, channels, strict=True):
            body.color = [float(channel == c) for c in range(3)] + [1.0]

    def show_picture(self) -> None:
        self.show_truth(self.lit, [None] * len(self.bodies))


def look_at_origin(place: Vector) -> Matrix:
    """Placed there, -z towards the origin, x level, y up: the pose of a camera and of an area light."""
    back = np.array(place) / np.linalg.norm(place)
    right = np.cross([0, 0, 1], back)
    right /= np.linalg.norm(right)
    pose = np.eye(4)
    pose[:3] = np.stack([right, np.cross(back, right), back, np.array(place)], 1)
    return Matrix(pose.tolist())


def _add(scene: Any, name: str, data: Any) -> Any:
    thing = bpy.data.objects.new(name, data)
    scene.collection.objects.link(thing)
    return thing


def _add_bodies(scene: Any, listed: tuple[Body, ...]) -> list[Any]:
    """One mesh a shape, shared by its bodies; the material hangs on the body."""
    makers = {"sphere": bodies.sphere, "cube": bodies.cube, "cylinder": bodies.cylinder}
    meshes = {shape: _mesh(shape, makers[shape]()) for shape in sorted({body.shape for body in listed})}
    for mesh in meshes.values():
        mesh.materials.append(None)
    placed = []
    for k, body in enumerate(listed):
        thing = _add(scene, f"body {k}", meshes[body.shape])
        thing.material_slots[0].link = "OBJECT"
        thing.material_slots[0].material = _rubber(body.rgb) if body.material == "rubber" else _metal(body.rgb)
        turn = Matrix.Rotation(math.fmod(body.theta, 2 * math.pi), 4, "Z")
        thing.matrix_world = Matrix.Translation(body.loc) @ turn @ Matrix.Scale(body.r, 4)
        placed.append(thing)
    return placed


def _mesh(name: str, source: bodies.Mesh) -> Any:
    mesh = bpy.data.meshes.new(name)
    mesh.from_pydata(source.points.tolist(), [], source.faces.tolist())
    mesh.shade_smooth()
    mesh.normals_split_custom_set_from_vertices(source.normals.tolist())
    return mesh


def _add_lights(scene: Any, places: dict[str, Vector]) -> None:
    for name, place in places.items():
        light = bpy.data.lights.new(name, "AREA")
        light.shape, light.size = "SQUARE", LIGHT_SIZE[name]
        light.energy, light.color = LIGHT_POWER[name], LIGHT_COLOUR[name]
        _hide_from_camera(_add(scene, name, light), look_at_origin(place))
    sun = bpy.data.lights.new("Sun", "SUN")
    sun.energy, sun.angle = SUN_IRRADIANCE, SUN_DIAMETER
    _hide_from_camera(_add(scene, "Sun", sun), look_at_origin(SUN_TOWARDS))


def _hide_from_camera(lamp: Any, pose: Matrix) -> None:
    lamp.matrix_world = pose
    lamp.visible_camera, lamp.visible_glossy = False, True


def _add_camera(scene: Any, described: Scene) -> Any:
    """A camera whose picture is the crop itself: lens and shift put focal length and optical axis where they were."""
    film = described.film
    data = bpy.data.cameras.new("camera")
    data.sensor_fit, data.sensor_width = "HORIZONTAL", SENSOR
    data.lens = film.focal_px / film.width * SENSOR
    data.shift_x = (film.width / 2 - film.centre[0]) / film.width
    data.shift_y = (film.centre[1] - film.height / 2) / film.width
    data.clip_start, data.clip_end = 0.1, 4 * bodies.GROUND_REACH
    scene.camera = _add(scene, "camera", data)
    return scene.camera


def _black_world() -> Any:
    world = bpy.data.worlds.new("black")
    world.use_nodes = True
    world.node_tree.nodes["Background"].inputs["Strength"].default_value = 0
    return world


class _Graph:
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


def _ground() -> Any:
    graph = _Graph("ground")
    return graph.surface(graph.node("ShaderNodeBsdfDiffuse", {"Color": (0.8, 0.8, 0.8, 1)}))


def _rubber(rgb: Vector) -> Any:
    """(1 - F12) [(1 - F14) Lambert + F14 velvet] + F12 gloss, F the Fresnel reflectance for IOR 1.2 and 1.4."""
    graph, colour = _Graph("rubber"), (*rgb, 1)
    matt = graph.node("ShaderNodeBsdfDiffuse", {"Color": colour})
    velvet = graph.node("ShaderNodeBsdfSheen", {"Color": colour, "Roughness": 0.6}, distribution="ASHIKHMIN")
    # Blender's roughness is the square root of the distribution's alpha.
    gloss = graph.node(
        "ShaderNodeBsdfAnisotropic",
        {"Color": (0.8, 0.8, 0.8, 1), "Roughness": math.sqrt(0.35), "Anisotropy": 0.0},
        distribution="BECKMANN",
    )
    soft = graph.node("ShaderNodeMixShader", {0: graph.node("ShaderNodeFresnel", {"IOR": 1.4}), 1: matt, 2: velvet})
    return graph.surface(
        graph.node("ShaderNodeMixShader", {0: graph.node("ShaderNodeFresnel", {"IOR": 1.2}), 1: soft, 2: gloss})
    )


def _metal(rgb: Vector) -> Any:
    """0.4 GGX(alpha 0.2) + 0.6 GGX(alpha 0.01), both coloured and slightly anisotropic; the second nearly a mirror."""
    graph, colour = _Graph("metal"), (*rgb, 1)
    broad, narrow = (
        graph.node(
            "ShaderNodeBsdfAnisotropic",
            {"Color": colour, "Roughness": math.sqrt(alpha), "Anisotropy": 0.25},
            distribution="GGX",
        )
        for alpha in (0.2, 0.01)
    )
    return graph.surface(graph.node("ShaderNodeMixShader", {0: 0.6, 1: broad, 2: narrow}))


def _mask(see_through: bool) -> Any:
    """Glow in the body's own colour; see-through bodies only on their front, so that, convex, they count once a ray."""
    graph = _Graph("complete" if see_through else "seen")
    colour = graph.tree.nodes.new("ShaderNodeObjectInfo").outputs["Color"]
    if not see_through:
        shader = graph.node("ShaderNodeEmission", {"Color": colour})
    else:
        behind = graph.tree.nodes.new("ShaderNodeNewGeometry").outputs["Backfacing"]
        front = graph.node("ShaderNodeMath", {0: 1.0, 1: behind}, operation="SUBTRACT")
        glow = graph.node("ShaderNodeEmission", {"Color": colour, "Strength": front})
        shader = graph.node("ShaderNodeAddShader", {0: glow, 1: graph.node("ShaderNodeBsdfTransparent")})
    # The glow is only looked at: nothing is lit by it, so Cycles need not gather its triangles as lights.
    graph.material.cycles.emission_sampling = "NONE"
    return graph.surface(shader)
