"""Which kernel comes next, is its driver built, and may a node boot it? Pools, discovery, prebuilds, gate."""
