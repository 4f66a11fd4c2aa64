"""q of the background, then of one object after another, then of all of them again.

What networks see of earlier estimates is detached: gradients pass from stage to stage through the LSTMs alone.
Paper: whether refinements share networks with the first look is not said; here they share the heads.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from viewslots.methods.contract import mapped
from viewslots.methods.distributions import beta_parameters, relaxed_bernoulli_logit, widen
from viewslots.methods.gmioo.config import EncoderStage
from viewslots.methods.gmioo.networks import Encoder, Recurrent, connected, perceptron
from viewslots.methods.gmioo.rendering import scale_and_shift
from viewslots.methods.gmioo.variables import Layers, Normal, ObjectNoise, Objects, State, parted
from viewslots.methods.schedules import Scalar
from viewslots.methods.spatial import crop as cropped


def normal(values: Float[Tensor, "*N E"]) -> Normal:
    """Halves of a head's answer: means and logarithms of variances."""
    mu, log_variance = widen(values).chunk(2, -1)
    return Normal(mu, log_variance / 2)


class BackgroundInference(nn.Module):
    def __init__(self, *, image_size: int, stages: Sequence[EncoderStage], hidden: int, background_dim: int) -> None:
        super().__init__()
        self.first = Recurrent(Encoder(3, image_size, stages, hidden), hidden)
        self.update = Recurrent(Encoder(10, image_size, stages, hidden), hidden)
        self.head = perceptron(hidden, (hidden,), 2 * background_dim)

    def begin(self, image: Float[Tensor, "N 3 H W"]) -> tuple[State, Normal]:
        state = self.first(image)
        return state, normal(self.head(state[0]))

    def refine(self, seen: Float[Tensor, "N 10 H W"], state: State) -> tuple[State, Normal]:
        """`seen`: the picture, its reconstruction, the mask of the background and the background's picture."""
        state = self.update(seen.detach(), state)
        return state, normal(self.head(state[0]))


class ObjectInference(nn.Module):
    def __init__(
        self, *, image_size: int, glimpse_size: int, stages: Sequence[EncoderStage], hidden: int, code_dim: int
    ) -> None:
        super().__init__()
        self.glimpse_size = glimpse_size
        self.main = Recurrent(Encoder(7, image_size, stages, hidden), hidden)
        self.first_full = Recurrent(connected(hidden, hidden), hidden)
        self.first_crop = Recurrent(Encoder(7, glimpse_size, stages, hidden), hidden)
        self.update_full = Recurrent(Encoder(12, image_size, stages, hidden), hidden)
        self.update_crop = Recurrent(Encoder(12, glimpse_size, stages, hidden), hidden)
        self.box_head = perceptron(hidden, (hidden, hidden), 2 * 4)
        self.code_head = perceptron(hidden, (hidden,), 2 * code_dim)
        self.presence_head = perceptron(2 * hidden, (hidden, hidden), 3)

    def begin(
        self, seen: Float[Tensor, "N 7 H W"], main: State | None, noise: ObjectNoise, temperature: Scalar | None
    ) -> tuple[State, Objects]:
        """The next object. `seen`: the picture, the reconstruction by what was found before it, and the background's
        mask there. The main LSTM remembers what was found."""
        seen = seen.detach()
        main = self.main(seen, main)
        full = self.first_full(main[0])
        return main, self.examine(full, seen, self.first_crop, noise, temperature)

    def refine(
        self,
        around: Float[Tensor, "N K 7 H W"],
        objects: Objects,
        layers: Layers,
        noise: ObjectNoise,
        temperature: Scalar | None,
    ) -> Objects:
        """All objects at once, each with what it was. `around`: the picture, its reconstruction without the object,
        and what covers it."""
        sizes = (objects.presence.shape[0], objects.presence.shape[1])
        painted = torch.cat([layers.appearance, layers.shape[:, :, None]], 2)
        given = (around, painted, layers.glimpse, objects.presence)
        around, painted, glimpse, presence = (values.detach().flatten(0, 1) for values in given)
        full, crop, noise = mapped((objects.full, objects.crop, noise), lambda values: values.flatten(0, 1))
        full = self.update_full(with_presence(around, painted, presence), full)

        def look(seen: Float[Tensor, "I 7 g g"]) -> State:
            return self.update_crop(with_presence(seen, glimpse, presence), crop)

        found = self.examine(full, around, look, noise, temperature)
        return mapped(found, lambda values: parted(values, sizes))

    def examine(
        self,
        full: State,
        seen: Float[Tensor, "I 7 H W"],
        look: Callable[[Float[Tensor, "I 7 g g"]], State],
        noise: ObjectNoise,
        temperature: Scalar | None,
    ) -> Objects:
        """Where the object is, then what it is and whether it is there. Without a temperature, presence is 0 or 1.

        Paper: what is in the glimpse is detached; where it is taken is not, as in other spatial transformers.
        """
        box = normal(self.box_head(full[0]))
        z_box = box.sample(noise.box)
        found = look(cropped(seen, *scale_and_shift(z_box), self.glimpse_size))
        code = normal(self.code_head(found[0]))
        presence = widen(self.presence_head(torch.cat([full[0], found[0]], 1)))
        tau, logit_zeta = beta_parameters(presence[:, :2]), presence[:, 2]
        return Objects(
            full=full,
            crop=found,
            box=box,
            code=code,
            tau=tau,
            logit_zeta=logit_zeta,
            z_box=z_box,
            z_code=code.sample(noise.code),
            presence=sampled_presence(logit_zeta, noise.presence, temperature),
        )


def sampled_presence(
    logit: Float[Tensor, "I"], noise: Float[Tensor, "I"], temperature: Scalar | None
) -> Float[Tensor, "I"]:
    if temperature is None:
        return (logit + noise > 0).to(logit.dtype)
    return relaxed_bernoulli_logit(logit, noise, temperature).sigmoid()


def with_presence(
    seen: Float[Tensor, "I 7 h w"], painted: Float[Tensor, "I 4 h w"], presence: Float[Tensor, "I"]
) -> Float[Tensor, "I 12 h w"]:
    """What an updater sees: the surroundings, the object itself, and its presence at every pixel."""
    everywhere = presence[:, None, None, None].expand(-1, 1, *seen.shape[2:])
    return torch.cat([seen, painted, everywhere], 1)
