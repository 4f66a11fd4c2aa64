"""Umbra: ours, beside the paper's model. A trained OCLOC learns what shadows are, and sharper shapes."""
