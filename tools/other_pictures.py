"""Pictures that no model of ours knows: [S, M, H, W, 3] bytes of each kind, one picture a scene."""

import numpy as np
from PIL import Image, ImageDraw

from viewslots.data.presets import data_preset

SIDE, SEED = 64, 5
Random = np.random.Generator


def uniform(random: Random) -> np.ndarray:
    """Greys and colours."""
    colour = np.full(3, random.integers(256)) if random.random() < 0.5 else random.integers(0, 256, 3)
    return np.broadcast_to(colour, (SIDE, SIDE, 3))


def gradient(random: Random) -> np.ndarray:
    start, end = random.integers(0, 256, (2, 3))
    shade = np.broadcast_to(start + (end - start) * np.linspace(0, 1, SIDE)[:, None, None], (SIDE, SIDE, 3))
    return shade if random.random() < 0.5 else shade.swapaxes(0, 1)


def noise(random: Random) -> np.ndarray:
    """Of each pixel alone, from faint to full."""
    return random.integers(40, 216) + random.normal(0, random.uniform(2, 100), (SIDE, SIDE, 3))


def natural_noise(random: Random) -> np.ndarray:
    """With a spectrum like that of photographs."""
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(SIDE), np.fft.fftfreq(SIDE)))
    frequency[0, 0] = 1
    spectrum = np.fft.fft2(random.normal(size=(3, SIDE, SIDE))) / frequency ** random.uniform(0.8, 1.6)
    values = np.fft.ifft2(spectrum).real.transpose(1, 2, 0)
    return (values - values.mean()) / values.std() * random.uniform(20, 60) + 128


def drawing(random: Random) -> np.ndarray:
    """Lines and shapes on paper, drawn large."""
    image = Image.new("RGB", (4 * SIDE, 4 * SIDE), tuple(random.integers(200, 256, 3).tolist()))
    pen = ImageDraw.Draw(image)
    for _ in range(random.integers(3, 9)):
        (x, y), (width, height) = random.integers(10, 200, 2).tolist(), random.integers(20, 100, 2).tolist()
        colour, box = tuple(random.integers(0, 256, 3).tolist()), (x, y, x + width, y + height)
        fill = colour if random.random() < 0.5 else None
        kind = random.integers(4)
        if kind == 0:
            pen.rectangle(box, fill, colour, 3)
        elif kind == 1:
            pen.ellipse(box, fill, colour, 3)
        elif kind == 2:
            pen.line(box, colour, 4)
        else:
            pen.polygon([(x, y + height), (x + width, y + height), (x + width // 2, y)], fill, colour)
    return np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BOX))


DRAWN = {
    "uniform colours": uniform,
    "gradients": gradient,
    "noise": noise,
    "natural noise": natural_noise,
    "drawings": drawing,
}


def other_kinds(count: int) -> dict[str, np.ndarray]:
    kinds = {}
    for name, draw in DRAWN.items():
        random = np.random.default_rng(SEED)
        kinds[name] = np.stack([draw(random) for _ in range(count)]).clip(0, 255).astype(np.uint8)[:, None]
    for name in ("dsprites", "abstract"):
        world = data_preset(name).world(None)
        drawn = [world.sample(SEED, "test1", index) for index in range(count)]
        kinds[name] = world.render(drawn, world.slots("test1")).image[:, :1]
    return kinds
