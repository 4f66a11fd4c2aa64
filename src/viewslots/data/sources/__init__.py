"""Scenes of others, one kind of source a file: anybody's pictures and the public data sets of the field."""
