"""Kernel discovery: which kernels the package repositories of the nodes have."""
