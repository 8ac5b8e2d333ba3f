"""How an admin describes the devices of an extended resource: read and checked, for each program. Pure."""
