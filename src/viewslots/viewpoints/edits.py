"""New scenes from old ones: remove, move, duplicate and take objects, exchange backgrounds.

Objects keep their indices: what is removed stays as an absent one, what is new comes last. Viewpoints and pictures stay
those of the first scene.

Moving an object is not in the paper. The model has no number for where an object stands: place, size, shape and colour
share one code. But its decoder says how each number of the code acts on the picture. So the shortest change of the code
is sought that brings the middle of the complete shape to another place and leaves its mean colour as it is, by
Gauss-Newton steps; its size is free, as what comes nearer grows. All viewpoints share the code, so the object stands
elsewhere for each of them.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from viewslots.errors import UserError
from viewslots.methods.contract import SceneCodes, SceneMethod
from viewslots.viewpoints.scene import InferredScene

ASIDE = (0.15, 0.0)
"""Shares of the picture by which a copy stands to the right of its original."""
STEPS = 12
"""Of Gauss and Newton."""
LONGEST = 1.0
"""Of one step. Codes have about unit spread in every direction; beyond this the straight line is not to be trusted."""
SMALLEST_AREA = 1e-3


def remove(scene: InferredScene, k: int) -> InferredScene:
    """The scene without object k."""
    scene.check_objects([k])
    presence = scene.presence.clone()
    presence[k] = 0.0
    return replace(scene, presence=presence)


def keep(scene: InferredScene, ks: Sequence[int]) -> InferredScene:
    """The scene with these objects alone; one that was absent comes to be present."""
    presence = torch.zeros_like(scene.presence)
    presence[list(scene.check_objects(ks))] = 1.0
    return replace(scene, presence=presence)


def surest_first(scene: InferredScene) -> InferredScene:
    """The same scene with its objects in falling order of presence, so that those which are there come first."""
    order = scene.presence.argsort(descending=True, stable=True)
    return replace(scene, objects=scene.objects[order], presence=scene.presence[order])


def move(
    scene: InferredScene, k: int, shift: tuple[float, float], view: Float[Tensor, "Dview"] | None = None
) -> InferredScene:
    """The scene with object k further to the right and down, by shares of the picture from a viewpoint (default: the
    first). It goes as far as the model can follow, and may change a little in looks."""
    scene.check_objects([k])
    view = scene.views[0] if view is None else view
    code = moved(scene.reader.scenes, scene.background, scene.objects[k], view, shift)
    return replace(scene, objects=torch.cat([scene.objects[:k], code[None], scene.objects[k + 1 :]]))


def duplicate(
    scene: InferredScene, k: int, shift: tuple[float, float] = ASIDE, view: Float[Tensor, "Dview"] | None = None
) -> InferredScene:
    """The scene with object k twice. The copy comes last, moved by `shift`: without that, it hides inside the first."""
    copied = take(scene, scene, k)
    return copied if shift == (0.0, 0.0) else move(copied, len(scene.objects), shift, view)


def take(scene: InferredScene, other: InferredScene, k: int) -> InferredScene:
    """The scene with object k of another one as well; to move it from there to here, `remove` it there."""
    same_model(scene, other)
    other.check_objects([k])
    return replace(
        scene,
        objects=torch.cat([scene.objects, other.objects[k : k + 1]]),
        presence=torch.cat([scene.presence, torch.ones_like(scene.presence[:1])]),
    )


def put_in_place(scene: InferredScene, k: int, other: InferredScene, j: int) -> InferredScene:
    """The scene with object j of another one instead of its own object k."""
    same_model(scene, other)
    scene.check_objects([k])
    other.check_objects([j])
    return replace(scene, objects=torch.cat([scene.objects[:k], other.objects[j : j + 1], scene.objects[k + 1 :]]))


def exchange_backgrounds(a: InferredScene, b: InferredScene) -> tuple[InferredScene, InferredScene]:
    same_model(a, b)
    return replace(a, background=b.background), replace(b, background=a.background)


def same_model(a: InferredScene, b: InferredScene) -> None:
    """Codes mean something to the model alone that made them."""
    if a.reader.model is not b.reader.model:
        raise UserError("the two scenes come from different models; let one model read both")


def moved(
    model: SceneMethod,
    background: Float[Tensor, "Dbck"],
    code: Float[Tensor, "Dattr"],
    view: Float[Tensor, "Dview"],
    shift: tuple[float, float],
) -> Float[Tensor, "Dattr"]:
    """The code of the object `shift` further (right, down) in shares of the picture: as near to that as steps come."""

    def facts(candidate: Tensor) -> Tensor:
        return appearance_facts(model, background, candidate, view)

    change = torch.tensor([*shift, 0.0, 0.0, 0.0], dtype=code.dtype, device=code.device)
    with torch.enable_grad():
        target = facts(code).detach() + change
        for _ in range(STEPS):
            jacobian = torch.func.jacrev(facts)(code)
            step = torch.linalg.pinv(jacobian, rtol=1e-3) @ (target - facts(code).detach())
            code = code + step * (LONGEST / step.norm().clamp(min=LONGEST))
    return code


def appearance_facts(
    model: SceneMethod,
    background: Float[Tensor, "Dbck"],
    code: Float[Tensor, "Dattr"],
    view: Float[Tensor, "Dview"],
) -> Float[Tensor, "5"]:
    """Of the complete shape: its middle (x, y) and its mean colour, all about 0 to 1."""
    alone = model.render_codes(SceneCodes(view[None], background, code[None], torch.ones_like(code[:1])))
    shape, colour = alone.complete[0, 0], alone.appearance[0, 0]
    H, W = shape.shape
    area = shape.sum() + SMALLEST_AREA
    y, x = ((torch.arange(side, device=shape.device) + 0.5) / side for side in (H, W))
    middle = torch.stack([(shape * x).sum(), (shape * y[:, None]).sum()]) / area
    return torch.cat([middle, (shape * colour).sum((1, 2)) / area])
