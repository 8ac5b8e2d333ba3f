"""The exporter: how much cards are used and by whom, for Prometheus and for people. Imported only where it is on."""
