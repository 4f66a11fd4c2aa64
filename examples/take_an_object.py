"""Take the nearest object of one scene to another: python examples/take_an_object.py OUT.png

Rows: four viewpoints. Columns: the first scene, the second one, the second with the object of the first, and the same
with the object moved to the left.
"""

import sys

import torch
from PIL import Image

import viewslots
from viewslots.data.presets import data_preset
from viewslots.viewpoints.edits import move, take

world = data_preset("clevr-m1").world(None)
made = world.render([world.sample(7, "test1", index) for index in (1, 2)], world.slots("test1"))

model = viewslots.load("umbra")
first, second = (model.decompose(pictures[:4]) for pictures in made.image)
nearest = first.render().nearest_first()[0]
both = take(second, first, nearest)
aside = move(both, len(both.objects) - 1, (-0.2, 0.0), view=second.views[0])  # a fifth of the picture to the left

columns = [first.render_many(first.views)]
columns += [scene.render_many(second.views) for scene in (second, both, aside)]
strip = torch.cat([torch.cat([view.image for view in column], 1) for column in columns], 2)
pixels = (strip.clamp(0, 1) * 255).byte().permute(1, 2, 0).numpy()
Image.fromarray(pixels).resize((768, 768), Image.Resampling.BICUBIC).save(sys.argv[1])
print(f"object {nearest} of the first scene is object {len(both.objects) - 1} of the second: see {sys.argv[1]}")
