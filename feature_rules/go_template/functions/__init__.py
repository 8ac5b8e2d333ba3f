"""Functions of templates, one module per topic; :mod:`table` has them all by name."""
