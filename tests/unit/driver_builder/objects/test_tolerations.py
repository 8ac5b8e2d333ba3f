"""What pods of ours tolerate: the taints that we set ourselves."""

from dataclasses import replace

from driver_builder.model.image_state import Absent
from driver_builder.nodes.changes import StartBuild
from driver_builder.objects.tolerations import of_pending, with_ours
from driver_builder.plan.plan import plan
from tests.support.driver_builder.changes import applied
from tests.support.driver_builder.factories import NAMESPACE, SETTINGS, driver, snapshot, with_images

PENDING = driver("b", spec_changes={"validation": {"taint": True}, "module": {"names": ["other"]}})
TOLERATION = {"key": f"driverwright.io/{NAMESPACE}.b", "operator": "Exists"}


def test_the_taint_of_a_driver_that_is_not_proven_is_tolerated() -> None:
    """That of each driver that asks for one."""
    assert of_pending((driver("a"), PENDING)) == (TOLERATION,)
    assert with_ours([TOLERATION])[0] == TOLERATION


def test_pods_and_builds_of_all_drivers_tolerate_it() -> None:
    """A driver that says what it tolerates comes to such a node, and a build runs where there is no other node."""
    own = {"key": "x", "operator": "Exists"}
    other = driver("a", spec_changes={"tolerations": [own]})
    seen = snapshot(drivers=(other, PENDING))
    (item, *_) = applied(plan(with_images(seen), SETTINGS).actions)
    assert item.manifest["spec"]["template"]["spec"]["tolerations"][:2] == [own, TOLERATION]
    builds = [item for item in plan(with_images(seen, Absent()), SETTINGS).actions if isinstance(item, StartBuild)]
    assert [item.tolerations for item in builds] == [(own, TOLERATION), (TOLERATION,)]
    without = replace(seen, drivers=(other, driver("b", spec_changes={"module": {"names": ["other"]}})))
    builds = [item for item in plan(with_images(without, Absent()), SETTINGS).actions if isinstance(item, StartBuild)]
    assert [item.tolerations for item in builds] == [(own,), ()]
