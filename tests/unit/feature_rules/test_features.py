"""Features: how values of several sources become one."""

from feature_rules.features import Features, merge


def test_flags_unite_attributes_overwrite_and_instances_follow() -> None:
    """Merging unites flags, overwrites attributes and appends instances."""
    first = Features(
        flags={"f": frozenset("a")}, attributes={"a": {"x": "1", "y": "1"}}, instances={"i": ({"n": "1"},)}
    )
    second = Features(flags={"f": frozenset("b")}, attributes={"a": {"y": "2"}}, instances={"i": ({"n": "2"},)})
    merged = merge([first, second])
    assert merged.flags == {"f": frozenset("ab")}
    assert merged.attributes == {"a": {"x": "1", "y": "2"}}
    assert merged.instances == {"i": ({"n": "1"}, {"n": "2"})}


def test_names_with_nothing_in_them_stay() -> None:
    """Looked for and empty is not the same as never looked for."""
    merged = merge([Features(flags={"f": frozenset()}, attributes={"a": {}}, instances={"i": ()})])
    assert merged == Features(flags={"f": frozenset()}, attributes={"a": {}}, instances={"i": ()})


def test_nothing_merges_to_nothing() -> None:
    """The merge of no features is empty."""
    assert merge([]) == Features({}, {}, {})
