"""Say which build of torch was installed. With CI=true a CUDA package fails the build: gigabytes for nothing."""

import os
import sys
from importlib.metadata import distributions

import torch

names = sorted({(dist.metadata["Name"] or "").lower() for dist in distributions()})
cuda = [name for name in names if name.startswith("nvidia-")]
if cuda:
    print(f"torch {torch.__version__} came with {len(cuda)} CUDA packages; that is fine on a machine with a GPU")
    if os.environ.get("CI") == "true":
        sys.exit(f"CI builds with the CPU build of torch alone, but found {', '.join(cuda)}")
