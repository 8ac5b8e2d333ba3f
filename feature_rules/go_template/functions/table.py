"""The table of all functions a template may use: Go's own and sprig's, whose names win.

Not here, and refused with their reason: what would make a node's labels depend on the moment, on chance, on the
worker's environment or on the network.
"""

from feature_rules.go_template.functions import (
    builtin,
    cases,
    dicts,
    encoding,
    json_text,
    lists,
    mathematics,
    paths,
    regexes,
    text,
    versions,
)  # fmt: skip
from feature_rules.go_template.functions.registry import Registered

_MODULES = (
    builtin, encoding, text, cases, lists, dicts, mathematics, json_text, regexes, versions, paths,
)  # fmt: skip

FUNCTIONS: dict[str, Registered] = {
    name: function for module in _MODULES for name, function in module.REGISTRY.functions.items()
}

_REFUSED = {
    "it calls functions that the data cannot hold": "call",
    "it reads the worker's environment": "env expandenv",
    "it asks the network": "getHostByName",
    "it gives another result each time": (
        "randAlphaNum randAlpha randAscii randNumeric randSeededNumeric randBytes randInt shuffle uuidv4"
    ),
    "it depends on the moment": (
        "ago date date_in_zone date_modify dateInZone dateModify duration durationRound htmlDate htmlDateInZone"
        " must_date_modify mustDateModify mustToDate now toDate unixEpoch"
    ),
    "it is cryptography, which no label needs": (
        "bcrypt htpasswd genPrivateKey derivePassword buildCustomCert genCA genCAWithKey genSelfSignedCert"
        " genSelfSignedCertWithKey genSignedCert genSignedCertWithKey encryptAES decryptAES"
    ),
    "labels hold no URLs": "urlParse urlJoin",
}
_REASONS = {name: reason for reason, names in _REFUSED.items() for name in names.split()}


def unknown_function(name: str) -> str:
    """Return why there is no function ``name``; empty when there is one."""
    if name in FUNCTIONS:
        return ""
    if name in _REASONS:
        return f"function {name} is refused: {_REASONS[name]}"
    return f"function {name[:60]!r} is not defined{_nearest(name[:60])}"


def _nearest(name: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only for the message about a mistake

    by_lower_case = {known.lower(): known for known in FUNCTIONS}
    near = get_close_matches(name.lower(), by_lower_case, n=1)
    return f"; did you mean {by_lower_case[near[0]]}?" if near else ""
