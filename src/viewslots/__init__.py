"""Unsupervised understanding of scenes from several pictures taken from unknown viewpoints."""

__version__ = "0.1.0"
