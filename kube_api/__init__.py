"""The one package that speaks to the Kubernetes API server; neither program imports the other."""
