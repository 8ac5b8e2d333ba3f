"""Does a module fit a kernel, and who signed it? ELF, symbols, vermagic, signatures."""
