"""The per-view baseline: OCLOC's networks and curriculum."""

from viewslots.methods.ocloc.config import OclocConfig
from viewslots.methods.ocloc.presets import COMPACT, multi_view

EXPERIMENTS = {
    **multi_view("per-view", "per-view", OclocConfig()),
    **multi_view("per-view", "per-view-compact", COMPACT),
}
