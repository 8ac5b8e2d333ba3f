"""Hosts, cases and machines for the tests of nfd_worker."""
