"""Which keys and values a Node may carry, for both programs that label nodes: rules, and the same in CEL."""
