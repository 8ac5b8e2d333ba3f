"""What the programs have in common: the only code that calls the API server, names, texts, quantities, pages."""
