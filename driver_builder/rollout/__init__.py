"""Which image goes to which nodes next? One target, waves, drains, and all drivers together. Pure."""
