"""What is wrong, logged once as long as it stays so."""

import logging


class Said:
    """Logs warnings by topic. ``name``: what they begin with."""

    def __init__(self, log: logging.Logger, name: str) -> None:
        self._log = log
        self._name = name
        self._topics: dict[str, str] = {}

    def __call__(self, topic: str, what: str) -> None:
        """Log what is wrong with a topic, unless that was logged last; empty: nothing is wrong any more."""
        if what and what != self._topics.get(topic):
            self._log.warning("%s: %s", self._name, what)
        self._topics[topic] = what
