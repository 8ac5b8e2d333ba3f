"""The files of a node as a source: what an admin describes by globs, and whether it works."""
