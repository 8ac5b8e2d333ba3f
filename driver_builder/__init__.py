"""Keeps a kernel-matched driver image built, verified and rolled out for every kernel the nodes run."""
