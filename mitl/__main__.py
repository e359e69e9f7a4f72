"""``python -m mitl``."""

from mitl.cli import main

main()
