"""What is to be done next, out of what is: pure, from one snapshot to actions and statuses."""
