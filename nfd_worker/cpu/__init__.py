"""What is read of the processor: CPUID, models, security features."""
