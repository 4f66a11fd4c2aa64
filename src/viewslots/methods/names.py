"""The registry: every method by name, where its class is, and what tables call it.

Light, so that the command line can list it at once.
"""

from typing import NamedTuple


class Entry(NamedTuple):
    place: str
    """MODULE:CLASS."""
    title: str = ""
    """What tables call it, if not by its name."""
    paper_row: str = ""
    """The row of the OCLOC paper's tables that it is measured by, if that is not called alike."""
    papers_own: bool = False
    """Whether that row is of this very method."""
    learns: bool = True


METHODS = {
    "ocloc": Entry("viewslots.methods.ocloc.model:Ocloc", "OCLOC", "Proposed", papers_own=True),
    "per-view": Entry("viewslots.methods.per_view.model:PerView", "per-view baseline", "Baseline", papers_own=True),
    "umbra": Entry("viewslots.methods.umbra.model:Umbra", paper_row="Proposed"),
    "slot-attention": Entry("viewslots.methods.slot_attention.model:SlotAttention", paper_row="Slot Attn"),
    "gmioo": Entry("viewslots.methods.gmioo.model:Gmioo", "GMIOO", "GMIOO"),
    "space": Entry("viewslots.methods.space.model:Space", "SPACE", paper_row="SPACE"),
    "mulmon": Entry("viewslots.methods.mulmon.model:Mulmon", "MulMON", "MulMON"),
    "kmeans": Entry("viewslots.methods.kmeans.model:KMeansMethod", learns=False),
}

OLD_NAMES = {"ocloc-per-view": "per-view"}
"""Of methods, in files that were written before."""


def entry(name: str) -> Entry:
    """Of any method, also of one that is not ours: then it is called by its name."""
    return METHODS.get(OLD_NAMES.get(name, name), Entry(""))
