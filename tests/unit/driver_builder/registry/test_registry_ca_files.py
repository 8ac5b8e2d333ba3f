"""Files with the CAs of registries."""

from driver_builder.registry import registry_ca
from driver_builder.registry.registry_ca import CaFiles


def test_files_that_nobody_asks_for_go() -> None:
    """Certificates are renewed; the latest stay, and one that is asked for again is there again."""
    files = CaFiles()
    made = [files.file(f"pem {number}") for number in range(registry_ca.MAX_FILES + 3)]
    assert [path.exists() for path in made[:4]] == [False, False, False, True]
    assert files.file("pem 0").read_text() == "pem 0"
