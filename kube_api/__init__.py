"""The only package that calls the Kubernetes API server; neither program imports the other."""
