"""STORE: the on-disk contract (docs/data-format.md), making, checking, exchange and batching of data sets."""
