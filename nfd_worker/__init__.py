"""Labels a Kubernetes node by its hardware, CPU, kernel and operating system."""
