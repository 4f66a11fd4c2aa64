"""The registry: every kind of source by name, where its class is, and what it reads.

Light, so that the command line can list it at once.
"""

from typing import NamedTuple


class Kind(NamedTuple):
    place: str
    """MODULE:CLASS."""
    about: str
    options: tuple[str, ...] = ()
    """Of the command, that only this kind takes."""


KINDS = {
    "pictures": Kind(
        "viewslots.data.sources.pictures:PictureFolders",
        "a folder of scene folders with pictures, or of videos",
        ("per_view_masks",),
    ),
    "octscenes": Kind("viewslots.data.sources.octscenes:OctScenes", "the folder of OCTScenes", ("resolution",)),
    "uorf": Kind(
        "viewslots.data.sources.uorf:Uorf",
        "a folder of uORF or uOCF, or one with their train and test",
        ("background",),
    ),
    "movi": Kind("viewslots.data.sources.rendered:Movi", "a folder of scene folders of Kubric"),
    "clevrtex": Kind("viewslots.data.sources.rendered:ClevrTex", "the folder of a variant of CLEVRTEX"),
    "clevr3d": Kind("viewslots.data.sources.rendered:Clevr3d", "the folder of CLEVR3D"),
    "multi-object": Kind(
        "viewslots.data.sources.multi_object:MultiObject", "a TFRecord file of multi_object_datasets, or several"
    ),
    "ocloc": Kind("viewslots.data.sources.ocloc:OclocFile", "an HDF5 file in the layout of OCLOC"),
}
