"""What devices were when containers got them, remembered over boots: a start with other files is refused."""
