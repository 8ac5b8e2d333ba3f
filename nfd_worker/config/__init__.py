"""Settings: flags, environment, configuration file, and the files of rules."""
