"""The words that packages have for their licences, as an expression of SPDX. Pure.

Identifiers that are not in SPDX's list become ``LicenseRef-...``, which a document describes by itself. The list is at
https://spdx.org/licenses; here are those words that stand for one identifier beyond doubt.
"""

import re
from collections.abc import Sequence

_KNOWN = {
    "0bsd": "0BSD",
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "apache-2": "Apache-2.0",
    "apache-2.0": "Apache-2.0",
    "bsd-2-clause": "BSD-2-Clause",
    "bsd-3-clause": "BSD-3-Clause",
    "bsd-4-clause": "BSD-4-Clause",
    "bsl-1.0": "BSL-1.0",
    "cc0": "CC0-1.0",
    "cc0-1.0": "CC0-1.0",
    "curl": "curl",
    "expat": "MIT",
    "isc": "ISC",
    "isc license (iscl)": "ISC",
    "lgplv2+": "LGPL-2.0-or-later",
    "mit": "MIT",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "mpl-2.0": "MPL-2.0",
    "psf-2": "PSF-2.0",
    "psf-2.0": "PSF-2.0",
    "python software foundation license": "PSF-2.0",
    "unicode-dfs-2016": "Unicode-DFS-2016",
    "zlib": "Zlib",
}
_GNU = re.compile(r"(AGPL|LGPL|GPL|GFDL)-([123](?:\.[0-3])?)(\+|-only|-or-later)?", re.IGNORECASE)
_GNU_VERSIONS = {
    "GPL": ("1.0", "2.0", "3.0"),
    "LGPL": ("2.0", "2.1", "3.0"),
    "AGPL": ("3.0",),
    "GFDL": ("1.1", "1.2", "1.3"),
}
_OPERATORS = re.compile(r",?\s+(and|or)\s+", re.IGNORECASE)
_NOT_OF_REFERENCES = re.compile(r"[^A-Za-z0-9.]+")


def spdx_expression(licenses: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return the expression that all of these apply, empty without any, and what its references stand for."""
    references: dict[str, str] = {}
    parts = list(dict.fromkeys(_expression(text, references) for text in licenses))
    bracketed = [f"({part})" if " " in part and len(parts) > 1 else part for part in parts]
    return " AND ".join(bracketed), references


def _expression(text: str, references: dict[str, str]) -> str:
    words = _OPERATORS.split(text.strip())
    names = [identifier(word) for word in words[::2]]
    operators = [word.upper() for word in words[1::2]]
    # Debian's "A, and B or C" binds by its commas: only what cannot be misread is taken apart.
    if all(names) and len(set(operators)) <= 1:
        joint = f" {operators[0]} " if operators else ""
        return joint.join(names)
    reference = f"LicenseRef-{_NOT_OF_REFERENCES.sub('-', text).strip('-.')}"
    references[reference] = text
    return reference


def identifier(word: str) -> str:
    """Return the identifier in SPDX's list, empty where no word of ours says which."""
    gnu = _GNU.fullmatch(word)
    if gnu is None:
        return _KNOWN.get(word.strip().lower(), "")
    family, version = gnu[1].upper(), gnu[2] if "." in gnu[2] else f"{gnu[2]}.0"
    later = "only" if gnu[3] in (None, "-only") else "or-later"
    return f"{family}-{version}-{later}" if version in _GNU_VERSIONS[family] else ""
