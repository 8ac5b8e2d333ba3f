"""What is done next: pure, from one snapshot to actions and statuses."""
