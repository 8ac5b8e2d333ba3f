"""Which pods do one thing on one node? Unload, validate, prove, pull: their manifests, and what they report. Pure."""
