"""One thin function a command, a file for each stage."""
