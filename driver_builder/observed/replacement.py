"""Whether a pod still has on its node what is wanted there. Pure."""

from driver_builder.objects import fingerprint
from driver_builder.observed.snapshot import DaemonSet, DriverPod


def is_current(pod: DriverPod, daemon_set: DaemonSet) -> bool:
    """Tell whether a pod's node would get nothing else from the DaemonSet's template as it is.

    A pod with a fingerprint of an older form is current until its next occasion: other modules than it has, or another
    fingerprint than was wanted when it was first seen. ``kept`` are fingerprints of before a rebuild that only some
    nodes asked for.
    """
    if pod.fingerprint == daemon_set.fingerprint or pod.fingerprint in daemon_set.kept:
        return True
    if fingerprint.is_of_this_form(pod.fingerprint):
        return False
    return daemon_set.adopted == daemon_set.fingerprint and pod.expected == daemon_set.expected
