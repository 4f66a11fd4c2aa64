"""Slot Attention (Locatello et al., NeurIPS 2020): a method for single pictures."""
