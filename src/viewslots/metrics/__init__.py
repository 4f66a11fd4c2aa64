"""Metrics of the paper and beyond it."""
