"""Umbra: ours, beside the paper's model. Objects cast shadows, and the background has a slot of its own."""
