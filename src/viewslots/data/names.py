"""Every data set that can be made, by name, and what it is.

Light, so that the command line can list them at once.
"""

DATA_SETS = {
    "clevr-m1": "CLEVR, 10 views over half a circle; colours, shapes and materials free",
    "clevr-m2": "CLEVR, 10 views over half a circle; colour, shape and material shared",
    "clevr-m3": "the scenes of clevr-m1, 10 views over the full circle",
    "clevr-m4": "the scenes of clevr-m2, 10 views over the full circle",
    "clevr-mixed": "scenes of clevr-m1 to clevr-m4 in turn",
    "tabletop": "things on a table in a room, textures, lamps of all kinds; 10 views, 128x128",
    "tabletop-plain": "the scenes of tabletop without textures",
    "tabletop-still": "the objects and views of tabletop on one table under one lamp",
    "tiny-clevr": "three large objects of different colours on 32x32 pixels, 4 views along an arc; for a CPU",
    "clevr": "CLEVR from its own camera, 128x128, one view",
    "dsprites": "coloured sprites on grey, 64x64, one view",
    "abstract": "clip art on a meadow, 64x64, one view",
}

PAPER_VIEWS = 4
"""M of the paper's Table 1: what is shown of scenes with several views, unless another number is asked for."""
