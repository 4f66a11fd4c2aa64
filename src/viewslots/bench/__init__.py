"""Speed, measured within one run: every figure stands beside another of the same machine and minute."""
