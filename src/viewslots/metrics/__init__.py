"""Metrics, the protocol of the paper, and reports."""
