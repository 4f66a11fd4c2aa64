"""For all tests: on a busy machine anything may take a second, so no command tells of its progress unless asked to."""

import os

os.environ.setdefault("TQDM_DISABLE", "1")
