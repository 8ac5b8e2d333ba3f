"""The publish child as a program of its own, for tests: the worker forks it, and a test process may have threads."""

import sys

PUBLISH_CHILD = (
    sys.executable,
    "-I",
    "-c",
    "import sys; from nfd_worker.publish.publish_child import main; sys.exit(main())",
)
