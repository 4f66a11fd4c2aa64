"""Data sets to and from other formats: HDF5 in the published OCLOC layout, .npz."""
