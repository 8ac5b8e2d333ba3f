"""Kernel modules: ELF, symbols, vermagic, signatures, and whether a module fits a kernel."""
