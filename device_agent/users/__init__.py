"""Which devices containers have: what the kubelet's podresources shows, what its checkpoint has, what was given."""
