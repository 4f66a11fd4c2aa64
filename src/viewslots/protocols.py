"""How named papers score masks, as values; `viewslots score --protocol` takes their names.

A score under one contract says little about another: one Slot Attention checkpoint has FG-ARI .62 and .89 under two.
"""

from viewslots.errors import UserError
from viewslots.files import shown
from viewslots.metrics.score import METRICS
from viewslots.protocol.masks import Protocol

OURS = Protocol(
    name="ocloc",
    paper="Yuan et al., Unsupervised Learning of Compositional Scene Representations from Multiple Unspecified "
    "Viewpoints (OCLOC)",
    contract="the paper's eight metrics, by its formulas (paper) and as its numbers were averaged (pooled)",
    scores=METRICS,
    unit="scene",
)
PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        OURS,
        Protocol(
            name="slot-attention",
            paper="Locatello et al., Object-Centric Learning with Slot Attention, 2020",
            contract="FG-ARI of each picture without the pixels of the true background; mean over pictures",
            scores=("FG-ARI",),
            unit="picture",
        ),
        Protocol(
            name="slot-attention-video",
            paper="Kipf et al., Conditional Object-Centric Learning from Video (SAVi), 2022",
            contract="FG-ARI of all frames of a video as one, without the pixels of the true background; mean over "
            "videos, 1 for one without objects",
            scores=("FG-ARI",),
            unit="scene",
            without_foreground=1.0,
        ),
        Protocol(
            name="mbo-i",
            paper="Seitzer et al., Bridging the Gap to Real-World Object-Centric Learning (DINOSAUR), 2023",
            contract="FG-ARI and mBO of instances of each picture; best overlaps are averaged over the objects of a "
            "picture, then over pictures with objects",
            scores=("FG-ARI", "mBO"),
            unit="picture",
            without_foreground=1.0,
        ),
        Protocol(
            name="mbo-i-video",
            paper="Zadaianchuk et al., Object-Centric Learning for Real-World Videos by Predicting Temporal Feature "
            "Similarities (VideoSAUR), 2023",
            contract="as mbo-i with all frames of a video as one, so that an object must keep its slot",
            scores=("FG-ARI", "mBO"),
            unit="scene",
            without_foreground=1.0,
        ),
        Protocol(
            name="mbo-i-objects",
            paper="Pont-Tuset et al., Multiscale Combinatorial Grouping for Image Segmentation and Object Proposal "
            "Generation, 2017 (Jaccard index at instance level)",
            contract="mBO of instances of each picture; mean over all objects of the data set",
            scores=("mBO",),
            unit="picture",
            average="objects",
        ),
        Protocol(
            name="clevrtex",
            paper="Karazija et al., ClevrTex: A Texture-Rich Benchmark for Unsupervised Multi-Object Segmentation, "
            "2021",
            contract="128x128 pixels, from the middle .8 of larger truth; mIoU by Hungarian matching with the "
            "background, superfluous segments count as 0; FG-ARI; MSE summed over pixels and colours; mean over "
            "pictures",
            scores=("mIoU", "FG-ARI", "MSE"),
            unit="picture",
            size=128,
            crop=0.8,
            without_foreground=1.0,
        ),
        Protocol(
            name="uorf",
            paper="Yu et al., Unsupervised Discovery of Object Radiance Fields (uORF), 2022; NV-FG-ARI as in "
            "later papers",
            contract="the first view is given: ARI of all pixels and FG-ARI there; NV-: of each further view alone; "
            "mean over pictures; NV-LPIPS with --lpips",
            scores=("ARI", "FG-ARI", "NV-ARI", "NV-FG-ARI", "NV-PSNR", "NV-SSIM"),
            unit="picture",
            given=1,
            without_foreground=1.0,
        ),
    )
}


def find_protocol(name: str) -> Protocol:
    if name not in PROTOCOLS:
        raise UserError(f"no protocol {shown(name)}; there are {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]
