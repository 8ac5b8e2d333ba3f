"""What is known of the cluster, as values: nodes, pods and what they prove. Pure."""
