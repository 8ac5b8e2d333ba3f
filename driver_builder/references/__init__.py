"""What specs name in their namespaces: Secrets, CA files, registry passwords, signing keys."""
