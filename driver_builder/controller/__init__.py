"""When is it done, who writes, and what ends it? Loop, Lease, execute, report, metrics."""
