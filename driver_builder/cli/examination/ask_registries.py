"""Asks the registries of the drivers what a push would need; it reads, and pushes nothing."""

from driver_builder.base.errors import PermanentError, RegistryUnauthorized, RegistryUnavailable
from driver_builder.checks.check_registries import Answer, RegistryPlace
from driver_builder.checks.finding import Unread
from driver_builder.model.image_state import Absent, Invalid, Present, Unauthorized, Unreachable
from driver_builder.registry.registry_access import Registries
from kube_api.errors import Forbidden, KubeApiError
from kube_api.text import printable

_TAG = "driverwright-doctor"
"""No image has it: a registry that says so has let us read."""


def ask(registries: Registries, place: RegistryPlace) -> Answer | Unread:
    """Ask for an image that need not exist, and for the actions that a token grants."""
    host, repository = place.repository.host, place.repository.repository
    try:
        client = registries.connect(place.namespace, place.settings, host, repository)
        state = client.inspect(repository, _TAG)
        granted = client.granted(repository) if isinstance(state, Present | Absent) else None
    except RegistryUnauthorized as error:
        return Answer(state=Unauthorized(message=str(error)))
    except RegistryUnavailable as error:
        return Answer(state=Unreachable(message=str(error)))
    except PermanentError as error:
        return Answer(state=Invalid(message=str(error)))
    except KubeApiError as error:
        return Unread(message=printable(str(error)), is_forbidden=isinstance(error, Forbidden))
    return Answer(state=state, granted=granted)
