"""Infer a scene once, render it many times."""
