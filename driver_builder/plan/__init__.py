"""What is done next, for all drivers? With removal, validations and the stages of a node. Pure."""
