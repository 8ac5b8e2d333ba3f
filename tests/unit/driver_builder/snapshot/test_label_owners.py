"""Who owns which labels of a Node, as its managedFields say."""

from typing import Any

import pytest

from driver_builder.model.third_party_labels import FIELD_MANAGER
from driver_builder.snapshot.inventory import read_node
from driver_builder.snapshot.label_owners import read_label_owners

Json = dict[str, Any]


def entry(manager: str, *keys: str, operation: str = "Apply") -> Json:
    """Make an entry of managedFields that owns labels."""
    labels: Json = {".": {}, **{f"f:{key}": {} for key in keys}}
    return {"manager": manager, "operation": operation, "fieldsV1": {"f:metadata": {"f:labels": labels}}}


def test_labels_that_third_parties_may_set_have_their_owners() -> None:
    """Each manager once, whatever it did; what nobody else may set is of no interest."""
    entries = [
        entry("nfd-worker", "vendor.io/a", "feature.node.kubernetes.io/kernel-version.full"),
        entry("kubelet", "kubernetes.io/arch", "kubernetes.io/hostname", operation="Update"),
        entry("driver-builder", "driverwright.io/a.b.ready", operation="Update"),
        entry("kubectl", "vendor.io/b"),
        entry("kubectl", "vendor.io/c", operation="Update"),
    ]
    found = {owner.manager: owner.keys for owner in read_label_owners({"managedFields": entries})}
    assert found == {"nfd-worker": ("vendor.io/a",), "kubectl": ("vendor.io/b", "vendor.io/c")}


def test_of_ours_all_are_read() -> None:
    """What another version allowed, and this one does not, is ours to remove."""
    (owner,) = read_label_owners({"managedFields": [entry(FIELD_MANAGER, "vendor.io/a", "kubernetes.io/x")]})
    assert owner.keys == ("kubernetes.io/x", "vendor.io/a")


@pytest.mark.parametrize(
    "entries",
    [None, [], [{}], [{"fieldsV1": None}], [{"fieldsV1": {"f:metadata": None}}], [{"fieldsV1": {"f:status": {}}}]],
    ids=str,
)
def test_a_node_whose_labels_nobody_owns(entries: list[Json] | None) -> None:
    """Entries of other fields, and old objects without any."""
    assert read_label_owners({"managedFields": entries}) == ()


def test_nodes_that_say_the_same_share_it() -> None:
    """A fleet of thousands has a few such values."""
    made = [
        read_node({"metadata": {"name": name, "managedFields": [entry("nfd-worker", "vendor.io/a", "vendor.io/b")]}})
        for name in ("n", "m")
    ]
    assert made[0].label_owners[0] is made[1].label_owners[0]
