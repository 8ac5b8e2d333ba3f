"""From features and rules to what the Node should carry."""
