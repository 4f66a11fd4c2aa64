"""Turn the camera around a scene that was seen from four places: python examples/turn_the_camera.py OUT.gif

Left: the scene. Right: the same as if it were made of glass, so that hidden parts show.
"""

import sys

import torch
from PIL import Image

import viewslots
from viewslots.data.presets import data_preset
from viewslots.viewpoints.paths import loop

world = data_preset("clevr-m1").world(None)
pictures = world.render([world.sample(7, "test1", 2)], world.slots("test1")).image[0, :4]

scene = viewslots.load("umbra").decompose(pictures)
frames = []
for view in scene.render_many(loop(scene.views, 48)):
    both = torch.cat([view.image, view.x_ray()], 2).clamp(0, 1)
    pixels = (both * 255).byte().permute(1, 2, 0).numpy()
    frames.append(Image.fromarray(pixels).resize((512, 256), Image.Resampling.BICUBIC))
frames[0].save(sys.argv[1], save_all=True, append_images=frames[1:], duration=60, loop=0)
print(f"{len(frames)} viewpoints of {scene.count} objects in {sys.argv[1]}")
