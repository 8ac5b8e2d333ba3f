"""Where devices come from: each source gives the units of its resources."""
