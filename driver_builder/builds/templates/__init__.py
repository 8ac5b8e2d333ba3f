"""Templates: how a Dockerfile is rendered, in a child process with limits."""
