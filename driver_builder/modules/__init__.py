"""Kernel modules: ELF, symbols, vermagic, and whether a module fits a kernel."""
