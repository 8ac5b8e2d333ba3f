"""Which of the images that this cluster pushed does nobody need any more? The record of them, and ``gc``."""
