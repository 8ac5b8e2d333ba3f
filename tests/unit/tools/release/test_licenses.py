"""Words for licences, as expressions of SPDX."""

import pytest

from tools.release.licenses import spdx_expression


@pytest.mark.parametrize(
    ("licenses", "expression"),
    [
        ([], ""),
        (["Expat"], "MIT"),
        (["MIT License"], "MIT"),
        (["GPL-2"], "GPL-2.0-only"),
        (["GPL-2+"], "GPL-2.0-or-later"),
        (["LGPL-2.1+"], "LGPL-2.1-or-later"),
        (["gpl-3.0-or-later"], "GPL-3.0-or-later"),
        (["BSD-3-clause", "GPL-2+"], "BSD-3-Clause AND GPL-2.0-or-later"),
        (["GPL-2+ or BSD-3-clause"], "GPL-2.0-or-later OR BSD-3-Clause"),
        (["GPL-2+ or BSD-3-clause", "Expat"], "(GPL-2.0-or-later OR BSD-3-Clause) AND MIT"),
        (["GPL-2+, and Expat"], "GPL-2.0-or-later AND MIT"),
        (["Expat", "MIT"], "MIT"),
    ],
    ids=str,
)
def test_words_that_stand_for_one_licence(licenses: list[str], expression: str) -> None:
    """Each of SPDX's list, all of them together."""
    assert spdx_expression(licenses) == (expression, {})


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("public-domain", "LicenseRef-public-domain"),
        ("BSD License", "LicenseRef-BSD-License"),  # two clauses or three
        ("GPL-2+ with OpenSSL exception", "LicenseRef-GPL-2-with-OpenSSL-exception"),
        ("GPL-2.5", "LicenseRef-GPL-2.5"),  # there is no such version
        ("GPL-2+ or Expat and ISC", "LicenseRef-GPL-2-or-Expat-and-ISC"),  # which of both binds first?
        ("GPL-2+ and whatever", "LicenseRef-GPL-2-and-whatever"),
    ],
)
def test_what_is_not_in_the_list_is_quoted(text: str, reference: str) -> None:
    """Nothing is guessed; the reference stands for the package's own words."""
    assert spdx_expression([text, "MIT"]) == (f"{reference} AND MIT", {reference: text})
