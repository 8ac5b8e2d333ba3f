"""Dynamic values: ``@domain.feature.element`` stands for the value of that element. Pure.

Labels and extended resources may have one; annotations, variables and taints may not.
"""

from feature_rules.features import Features

MARK = "@"


def resolve(value: str, features: Features) -> str | None:
    """Look up what a dynamic value names; any other value stays as it is.

    Only attributes have values. The element may contain dots, as in ``@system.osrelease.VERSION_ID.major``. Letter case
    matters, other than in a rule's ``feature``.

    Returns:
        None when there is no such element, or the text has fewer than three parts.
    """
    if not value.startswith(MARK):
        return value
    domain, _, rest = value[len(MARK) :].partition(".")
    feature, _, element = rest.partition(".")
    return features.attributes.get(f"{domain}.{feature}", {}).get(element)
