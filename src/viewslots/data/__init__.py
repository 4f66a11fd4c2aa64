"""STORE: the on-disk format (docs/data-format.md), generating, checking, exchange and batching of data sets."""
