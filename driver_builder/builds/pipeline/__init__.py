"""From a built image to one under its tag: verified, described, signed, pushed."""
