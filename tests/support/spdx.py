"""Checks bills of materials with SPDX's own library, which has the list of licences and the forms of package URLs."""

import json
from typing import Any


def problems(content: bytes) -> list[str]:
    """Return what is wrong with a document."""
    # Not at the top: that takes a second, which only those who check one should wait.
    from spdx_tools.spdx.parser.jsonlikedict.json_like_dict_parser import JsonLikeDictParser
    from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

    parser: Any = JsonLikeDictParser
    document = parser().parse(json.loads(content))
    return [message.validation_message for message in validate_full_spdx_document(document)]
