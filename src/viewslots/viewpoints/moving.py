"""Move an object across the picture. Not in the paper.

The model has no number for where an object stands: place, size, shape and colour share one code. But its decoder says
how each number of the code acts on the picture. So the shortest change of the code is sought that brings the middle of
the complete shape to another place and leaves its mean colour as it is, by Gauss-Newton steps; its size is free, as
what comes nearer grows. All viewpoints share the code, so the object stands elsewhere for each of them.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from viewslots.methods.contract import SceneCodes, SceneMethod

STEPS = 12
LONGEST = 1.0
"""Of one step. Codes have about unit spread in every direction; beyond this the straight line is not to be trusted."""
SMALLEST_AREA = 1e-3


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
