"""Tasks: pods that do one thing on one node (unload, validate, prove, pull). Their kinds and what comes next. Pure."""
