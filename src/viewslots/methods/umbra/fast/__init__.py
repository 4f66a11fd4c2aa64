"""Twins of the slow parts of Umbra that answer the same, up to rounding. The mathematics is read one folder up."""
