"""``python -m nfd_worker``: the same as the console script."""

from nfd_worker.cli.start import main

main()
