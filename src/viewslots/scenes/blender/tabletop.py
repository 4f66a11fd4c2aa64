"""Tabletop scenes as Blender data: bodies, table, room, lamps and cameras (docs/tabletop.md has the formulas).

Geometry and textures come from the description's own modules, so Blender adds no formula of its own.
"""

import math
from typing import Any

import bodies
import bpy
import numpy as np
from description import Film
from mathutils import Matrix
from scenery import Surface, room_surfaces, table_surfaces, thing_surfaces
from stage import Graph, Stage, mesh_data, pose_of

from viewslots.scenes.tabletop.table_scene import Camera, Finish, Lamp, TableScene

COLOR, PLACE = "texture color", "texture place"
"""Attributes of points that materials read."""


class TableStage(Stage):  # type: ignore[misc]  # mypy does not see this program's own modules
    def __init__(self, scene: TableScene) -> None:
        film = Film(scene.width, scene.height, (scene.width / 2, scene.height / 2), 1.0)
        super().__init__(film, scene.room.environment)
        self.cameras = scene.cameras
        self.lamps_seen = True
        for k, thing in enumerate(scene.objects):
            pose = pose_of(*np.transpose(thing.axes), thing.location)
            self.bodies.append(self.add(f"body {k}", _painted_data(thing_surfaces(thing)), pose))
        on_table = Matrix.Rotation(scene.table.theta, 4, "Z")
        in_room = Matrix.Translation((*scene.room.center, 0.0)) @ Matrix.Rotation(scene.room.theta, 4, "Z")
        self._add_scenery(table_surfaces(scene.table), on_table)
        self._add_scenery(room_surfaces(scene.room, -scene.table.height), in_room)
        self.lamps = [self._add_lamp(f"lamp {n}", lamp) for n, lamp in enumerate(scene.lamps)]

    def look_from(self, camera: Camera) -> None:
        focal = camera.focal * min(self.film.width, self.film.height)
        film = Film(self.film.width, self.film.height, self.film.centre, focal)
        self.aim(pose_of(*camera.axes, camera.location), film)

    def _add_scenery(self, surfaces: list[Surface], pose: Matrix) -> None:
        by_points = [surface for surface in surfaces if surface.picture is None]
        self.scenery += [self.add("scenery", _painted_data(by_points), pose)] if by_points else []
        for surface in surfaces:
            if surface.picture is not None:
                self.scenery.append(self.add("scenery", _papered_data(surface), pose))

    def _add_lamp(self, name: str, lamp: Lamp) -> Any:
        """Blender's watts: the radiance of a rectangle is power / (pi * area). It shines along its own -z."""
        light = bpy.data.lights.new(name, "AREA")
        light.shape, light.size, light.size_y = "RECTANGLE", lamp.width, lamp.height
        light.energy, light.color = math.pi * lamp.width * lamp.height, lamp.radiance
        right, up = lamp.axes
        return self.add(name, light, pose_of(right, -np.array(up), -np.array(lamp.normal), lamp.center))


def _painted_data(surfaces: list[Surface]) -> Any:
    """All surfaces as one mesh: colours at the points, a material for each finish."""
    data = mesh_data("painted", bodies.joined([surface.mesh for surface in surfaces]))
    colors = np.concatenate([np.column_stack([s.colors, np.ones(len(s.colors))]) for s in surfaces])
    data.attributes.new(COLOR, "FLOAT_COLOR", "POINT").data.foreach_set("color", colors.astype(np.float32).ravel())
    finishes = list(dict.fromkeys(surface.finish for surface in surfaces))
    for finish in finishes:
        graph = Graph("painted")
        color = graph.node("ShaderNodeAttribute", attribute_name=COLOR)
        data.materials.append(_coat(graph, finish, color))
    which = [np.full(len(s.mesh.faces), finishes.index(s.finish), np.int32) for s in surfaces]
    data.polygons.foreach_set("material_index", np.concatenate(which))
    return data


def _papered_data(surface: Surface) -> Any:
    assert surface.places is not None
    assert surface.picture is not None
    data = mesh_data("papered", surface.mesh)
    places = np.column_stack([surface.places, np.zeros(len(surface.places))])
    data.attributes.new(PLACE, "FLOAT_VECTOR", "POINT").data.foreach_set("vector", places.astype(np.float32).ravel())
    side = len(surface.picture)
    image = bpy.data.images.new("paper", side, side, float_buffer=True, is_data=True)
    image.pixels.foreach_set(np.dstack([surface.picture, np.ones((side, side))]).astype(np.float32).ravel())
    image.pack()
    graph = Graph("papered")
    node = graph.tree.nodes.new("ShaderNodeAttribute")
    node.attribute_name = PLACE
    color = graph.node("ShaderNodeTexImage", {"Vector": node.outputs["Vector"]}, image=image, extension="EXTEND")
    data.materials.append(_coat(graph, surface.finish, color))
    return data


def _coat(graph: Graph, finish: Finish, color: Any) -> Any:
    """(1 - F) Lambert + F GGX, F the Fresnel reflectance of the view angle; of metal, coloured GGX alone."""
    # Blender's roughness is the square root of the distribution's alpha.
    glossy = {"Color": color if finish.metal else (1, 1, 1, 1), "Roughness": math.sqrt(finish.alpha), "Anisotropy": 0.0}
    gloss = graph.node("ShaderNodeBsdfAnisotropic", glossy, distribution="GGX")
    if finish.metal:
        return graph.surface(gloss)
    matt = graph.node("ShaderNodeBsdfDiffuse", {"Color": color})
    if finish.ior == 1:
        return graph.surface(matt)
    # The node takes a face seen from behind for the inside of glass and inverts the index; both sides are to be alike.
    behind = graph.tree.nodes.new("ShaderNodeNewGeometry").outputs["Backfacing"]
    exponent = graph.node("ShaderNodeMath", {0: behind, 1: -2.0, 2: 1.0}, operation="MULTIPLY_ADD")
    index = graph.node("ShaderNodeMath", {0: finish.ior, 1: exponent}, operation="POWER")
    share = graph.node("ShaderNodeFresnel", {"IOR": index})
    return graph.surface(graph.node("ShaderNodeMixShader", {0: share, 1: matt, 2: gloss}))
