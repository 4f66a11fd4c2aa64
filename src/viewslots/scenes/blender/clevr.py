"""CLEVR's scenes as Blender data: bodies, materials, lights and camera."""

import math
from typing import Any

import bodies
import bpy
import numpy as np
from description import Body, Scene, Vector
from mathutils import Matrix
from stage import Graph, Stage, mesh_data, pose_of

LIGHT_SIZE = {"Lamp_Key": 0.5, "Lamp_Fill": 0.5, "Lamp_Back": 1.0}
"""Edge of the square, metres."""
LIGHT_POWER = {"Lamp_Key": 25 * math.pi, "Lamp_Fill": 7.5 * math.pi, "Lamp_Back": 12.5 * math.pi}
"""Watts; the radiance is power / (pi * size^2)."""
LIGHT_COLOUR = {"Lamp_Key": (1, 0.93231, 0.81666), "Lamp_Fill": (0.76167, 0.81772, 1), "Lamp_Back": (1, 1, 1)}

SUN_TOWARDS = (0.41450, -0.19458, 0.88901)
SUN_IRRADIANCE = 0.45
SUN_DIAMETER = 0.19934
"""Radians."""


class ClevrStage(Stage):  # type: ignore[misc]  # mypy does not see this program's own modules
    def __init__(self, scene: Scene) -> None:
        super().__init__(scene.film, (0.0, 0.0, 0.0))
        self.cameras = scene.cameras
        self._add_bodies(scene.bodies)
        ground = mesh_data("ground", bodies.plane() if scene.backdrop == "plane" else bodies.sweep())
        ground.materials.append(_ground())
        self.scenery = [self.add("ground", ground)]
        self._add_lights(scene.lights)

    def look_from(self, camera: Vector) -> None:
        self.aim(look_at_origin(camera), self.film)

    def _add_bodies(self, listed: tuple[Body, ...]) -> None:
        """One mesh a shape, shared by its bodies; the material hangs on the body."""
        makers = {"sphere": bodies.sphere, "cube": bodies.cube, "cylinder": bodies.cylinder}
        meshes = {shape: mesh_data(shape, makers[shape]()) for shape in sorted({body.shape for body in listed})}
        for mesh in meshes.values():
            mesh.materials.append(None)
        for k, body in enumerate(listed):
            thing = self.add(f"body {k}", meshes[body.shape])
            thing.material_slots[0].link = "OBJECT"
            thing.material_slots[0].material = _rubber(body.rgb) if body.material == "rubber" else _metal(body.rgb)
            turn = Matrix.Rotation(math.fmod(body.theta, 2 * math.pi), 4, "Z")
            thing.matrix_world = Matrix.Translation(body.loc) @ turn @ Matrix.Scale(body.r, 4)
            self.bodies.append(thing)

    def _add_lights(self, places: dict[str, Vector]) -> None:
        for name, place in places.items():
            light = bpy.data.lights.new(name, "AREA")
            light.shape, light.size = "SQUARE", LIGHT_SIZE[name]
            light.energy, light.color = LIGHT_POWER[name], LIGHT_COLOUR[name]
            self.lamps.append(self.add(name, light, look_at_origin(place)))
        sun = bpy.data.lights.new("Sun", "SUN")
        sun.energy, sun.angle = SUN_IRRADIANCE, SUN_DIAMETER
        self.lamps.append(self.add("Sun", sun, look_at_origin(SUN_TOWARDS)))


def look_at_origin(place: Vector) -> Matrix:
    """Placed there, -z towards the origin, x level, y up: the pose of a camera and of an area light."""
    back = np.array(place) / np.linalg.norm(place)
    right = np.cross([0, 0, 1], back)
    right /= np.linalg.norm(right)
    return pose_of(right, np.cross(back, right), back, place)


def _ground() -> Any:
    graph = Graph("ground")
    return graph.surface(graph.node("ShaderNodeBsdfDiffuse", {"Color": (0.8, 0.8, 0.8, 1)}))


def _rubber(rgb: Vector) -> Any:
    """(1 - F12) [(1 - F14) Lambert + F14 velvet] + F12 gloss, F the Fresnel reflectance for IOR 1.2 and 1.4."""
    graph, colour = Graph("rubber"), (*rgb, 1)
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
    graph, colour = Graph("metal"), (*rgb, 1)
    broad, narrow = (
        graph.node(
            "ShaderNodeBsdfAnisotropic",
            {"Color": colour, "Roughness": math.sqrt(alpha), "Anisotropy": 0.25},
            distribution="GGX",
        )
        for alpha in (0.2, 0.01)
    )
    return graph.surface(graph.node("ShaderNodeMixShader", {0: 0.6, 1: broad, 2: narrow}))
