"""Who signed a module: the signature at its end, and the certificates that it is compared with."""
