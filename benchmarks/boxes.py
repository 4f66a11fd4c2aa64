"""What keeps a network from learning the shapes of sprites: how it looks at them, or how it draws them?

One sprite (square, ellipse or heart) a picture of 64x64, turned, anywhere. An encoder makes a code of the picture, a
decoder draws the sprite from it. Either may work on the whole picture or in the sprite's box; place and size of the box
are told in these four cases, so that they differ in nothing else. In a fifth another network guesses the box, and
learns to from the error of the drawing alone.

    python benchmarks/boxes.py --out boxes.json
"""

import argparse
import math
import shlex
import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from viewslots.files import write_json
from viewslots.methods.ocloc.config import DecoderConfig
from viewslots.methods.ocloc.networks import CompactDecoder, initialise
from viewslots.methods.spatial import crop, paste, pixel_centres
from viewslots.provenance import provenance

SIZE, GLIMPSE, CODE, BATCH = 64, 32, 64, 32
ROOM = 1.6
"""Half the side of a box, in sizes of its sprite: everything is inside at any angle."""
EMPTY = -8.0
"""Logit of what lies outside a box."""
PICTURE, BOX, GUESSED = "picture", "box", "guessed box"
WAYS = ((PICTURE, PICTURE), (PICTURE, BOX), (BOX, PICTURE), (BOX, BOX), (GUESSED, GUESSED))
"""Where it looks, where it draws."""


def sprites(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Masks [N, 1, H, W], centres [N, 2] and sizes [N, 1], the picture being [-1, 1] each way."""

    def between(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, 1, 1, generator=generator)

    x, y, angle, size = between(-0.7, 0.7), between(-0.7, 0.7), between(0, 2 * math.pi), between(0.12, 0.28)
    kind = torch.randint(0, 3, (count, 1, 1), generator=generator)
    row, column = torch.meshgrid(*[pixel_centres(SIZE, x)] * 2, indexing="ij")
    u = ((column - x) * angle.cos() + (row - y) * angle.sin()) / size
    v = ((row - y) * angle.cos() - (column - x) * angle.sin()) / size
    square = 1 - torch.maximum(u.abs(), v.abs())
    ellipse = 1 - (u / 1.3) ** 2 - (v / 0.75) ** 2
    heart = (1.5 * u**2 * v**3 - (u**2 + v**2 - 1) ** 3) / 2
    inside = torch.where(kind == 0, square, torch.where(kind == 1, ellipse, heart))
    # A pixel wide, the edge goes from 0 to 1.
    masks = (inside * size * SIZE / 2).clamp(-0.5, 0.5) + 0.5
    return masks[:, None], torch.cat([x, y], 1)[..., 0], size[..., 0]


def encoder(size: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, kernel in ((1, 5), (32, 5), (32, 5), (32, 3)):
        layers += [nn.Conv2d(inputs, 32, kernel, stride=2, padding=kernel // 2), nn.ReLU()]
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(32 * (size // 16) ** 2, 256), nn.ReLU(), nn.Linear(256, outputs)
    )


class Sketch(nn.Module):
    def __init__(self, look: str, draw: str, seed: int) -> None:
        super().__init__()
        self.look, self.draw = look, draw
        self.finder = encoder(SIZE, 3) if look == GUESSED else None
        self.encoder = encoder(SIZE if look == PICTURE else GLIMPSE, CODE)
        grid, told = (16, 3) if draw == PICTURE else (8, 0)
        decoder = DecoderConfig(
            kind="compact",
            hidden=(256, 256),
            grid=grid,
            grid_channels=64,
            stages=((1, 3, 64), (1, 3, 64), (2, 3, 32), (1, 3, 32)),
            final_scale=2,
        )
        self.decoder = CompactDecoder(decoder, CODE + told, 1)
        initialise(self, torch.Generator().manual_seed(seed))

    def forward(self, masks: Tensor, centre: Tensor, size: Tensor, noise: Tensor) -> Tensor:
        """Logits of the sprite's mask."""
        half = (ROOM * size).expand(-1, 2)
        if self.finder is not None:
            guess = self.finder(masks)
            centre, half = guess[:, :2].tanh(), (0.15 + 0.85 * (guess[:, 2:] - 1).sigmoid()).expand(-1, 2)
        seen = masks if self.look == PICTURE else crop(masks, half, centre, GLIMPSE)
        code = self.encoder(seen) + noise
        if self.draw == PICTURE:
            return self.decoder(torch.cat([code, centre, size], 1))
        return paste(self.decoder(code) - EMPTY, half, centre, (SIZE, SIZE)) + EMPTY


def trained(look: str, draw: str, steps: int, seed: int) -> list[dict[str, float]]:
    """IoU on 256 other sprites while it learns."""
    model = Sketch(look, draw, seed)
    optimizer = torch.optim.Adam(model.parameters())
    generator = torch.Generator().manual_seed(100 + seed)
    others, curve = sprites(256, torch.Generator().manual_seed(7)), []
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(step / 100, 1) * 0.1 ** (step / steps)
        batch = sprites(BATCH, generator)
        logits = model(*batch, 0.05 * torch.randn(BATCH, CODE, generator=generator))
        loss = F.binary_cross_entropy_with_logits(logits, batch[0], reduction="sum") / BATCH
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        if step % 250 == 0 or step == steps:
            with torch.no_grad():
                drawn, true = model(*others, torch.zeros(256, CODE)) > 0, others[0] > 0.5
            overlap = (drawn & true).sum((1, 2, 3)) / (drawn | true).sum((1, 2, 3))
            curve.append({"step": step, "IoU": round(float(overlap.mean()), 4)})
            print(f"looks at the {look}, draws in the {draw}, seed {seed}: {curve[-1]}", flush=True)
    return curve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=2)
    asked = parser.parse_args()
    runs: list[dict[str, object]] = [
        {"looks_at": look, "draws_in": draw, "seed": seed, "curve": trained(look, draw, asked.steps, seed)}
        for seed in range(asked.seeds)
        for look, draw in WAYS
    ]
    story = provenance() | {"command": f"python benchmarks/boxes.py {shlex.join(sys.argv[1:])}"}
    write_json(asked.out, {"provenance": story, "steps": asked.steps, "batch": BATCH, "runs": runs})


if __name__ == "__main__":
    main()
