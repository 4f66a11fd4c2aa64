"""`python -m viewslots` is the `viewslots` command."""

from viewslots.cli import main

main()
