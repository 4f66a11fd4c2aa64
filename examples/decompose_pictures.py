"""Take pictures of one scene apart: python examples/decompose_pictures.py OUT PICTURE PICTURE ...

OUT gets every object as a layer with alpha, and scene.json with count, order and masks.
"""

import sys
from pathlib import Path

import viewslots
from viewslots.viewpoints.export import export_scene

out, pictures = Path(sys.argv[1]), sys.argv[2:]
model = viewslots.load("umbra-quick")  # a shipped model; a run folder does as well
scene = model.decompose(pictures, starts=6)  # of six random starts, the one with the shortest description

print(f"{scene.count} objects, in slots {scene.present()}")
print("warning:", scene.warning or "none, the pictures look familiar")
for number, view in enumerate(scene.render_many(scene.views), 1):
    hidden = (view.complete - view.masks[1:]).clamp(min=0).sum((1, 2)) / view.complete.sum((1, 2)).clamp(min=1)
    nearest = ", ".join(f"{k} ({float(hidden[k]):.0%} hidden)" for k in view.nearest_first())
    print(f"view {number}, nearest first: {nearest}")
export_scene(scene, out, {"pictures": pictures})
print(f"layers are in {out / 'layers'}")
