"""The OCLOC paper, a section a file."""
