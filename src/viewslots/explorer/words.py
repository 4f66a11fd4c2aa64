"""Words of the page that explain."""

INTRODUCTION = """# Turn the camera
A model was shown a few pictures of one scene, taken from places it was not told. Here you see what it understood: which
objects there are, what hides behind what, and how all of it looks from somewhere else. Nobody ever told it what an
object is."""

CAMERA = """Drag the dot, or use its arrow keys: left and right, up and down are the two directions in which the given
pictures differ most. The sliders are the same directions, and finer ones."""
PAD_WAYS = ("left and right on the pad", "up and down on the pad")

PRESENT_WORDS = "How sure the model is that this object is there"
X_RAY_WORDS = "Switch to X-ray above to see all outlines at once."
WAITING_WORDS = "The model looks at the first scene. That takes some seconds, as for every new one."

METRIC_WORDS = {
    "ARI-A": (
        "Whole picture",
        "How well pixels are sorted into objects and background, over all pictures; 0 is chance.",
    ),
    "AMI-A": ("Whole picture, by information", "The same question, measured in shared information; 0 is chance."),
    "ARI-O": ("Objects told apart", "How well the pixels of objects are sorted into the right ones; 0 is chance."),
    "AMI-O": ("Objects told apart, by information", "The same question, measured in shared information; 0 is chance."),
    "IoU": ("Complete shapes", "Overlap of guessed and true complete shapes, hidden parts included, over their union."),
    "F1": ("Complete shapes, milder", "The same overlap, over the mean of both areas."),
    "OCA": ("Count", "1 if the number of objects is right, else 0."),
    "OOA": ("Depth order", "Share of overlapping pairs of which the nearer one is told rightly, weighted by overlap."),
}
"""Metric -> what it is called on the page, and what it means."""
