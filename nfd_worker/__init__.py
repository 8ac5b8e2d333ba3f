"""Labels a Kubernetes node by its hardware, CPU, kernel and operating system."""

__version__ = "0.1.0"
