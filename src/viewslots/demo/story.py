"""What the page tells of."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from viewslots.demo.scores import Scores
from viewslots.demo.shipped import ModelFacts
from viewslots.viewpoints.scene import InferredScene

WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True)
class Story:
    """The model, the scenes as it sees them, and what is true."""

    model: ModelFacts
    scenes: Sequence[InferredScene]
    starts: int
    """How many random starts each scene is the best of."""
    held_out: Float[Tensor, "S V 3 H W"]
    visible: Sequence[int]
    """How many objects are to be seen, a scene."""
    scores: Scores
    seed: int

    def counting(self) -> str:
        """One sentence on how well the objects were counted here."""
        pairs = [(scene.count, there) for scene, there in zip(self.scenes, self.visible, strict=True)]
        right = sum(found == there for found, there in pairs)
        if right == len(pairs):
            return "Here it counts the objects of every scene right."
        share = f"Here it counts the objects of {number_of(right, 'scene')} of {number_of(len(pairs))} right"
        if all(found >= there for found, there in pairs):
            return f"{share}, and finds too many in the others; look for copies of one object among the layers."
        return f"{share}."


def number_of(count: int, noun: str = "") -> str:
    """In words, as far as one counts on fingers."""
    number = WORDS[count] if count < len(WORDS) else str(count)
    return f"{number} {noun}{'s' * (count != 1)}" if noun else number
