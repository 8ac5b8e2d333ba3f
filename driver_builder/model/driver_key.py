"""``namespace/name``, the key of a driver, taken apart. Pure."""


def split(key: str) -> tuple[str, str]:
    """Return namespace and name."""
    namespace, _, name = key.partition("/")
    return namespace, name


def namespace_of(key: str) -> str:
    """Return the namespace."""
    return split(key)[0]


def name_of(key: str) -> str:
    """Return the name in its namespace."""
    return split(key)[1]


def is_key(text: object) -> bool:
    """Return whether a value has both."""
    return isinstance(text, str) and all(split(text))
