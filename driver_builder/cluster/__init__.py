"""The controller: reads the cluster, carries out what the plan says, and writes what became of it."""
