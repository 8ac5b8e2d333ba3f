"""The CAs that a driver's builds trust: ``spec.build.caConfigMap``.

Place in the flow: an engine is given them with the build; a Job has the ConfigMap mounted. Both read it first.
"""

from driver_builder.api.build_settings import ConfigMapKey
from driver_builder.base.errors import BuildFailed, ConfigurationError, TemporaryError
from driver_builder.base.reasons import Reason
from driver_builder.model.build_proxy import CA_FIELD
from driver_builder.registry.registry_ca import read_ca
from kube_api.client import Reader
from kube_api.errors import KubeApiError


def read_build_ca(client: Reader, namespace: str, wanted: ConfigMapKey | None) -> str:
    """Read the certificates, in PEM; empty without a ConfigMap.

    Raises:
        BuildFailed: the ConfigMap is missing, or has no certificate.
        TemporaryError: the API server does not answer.
    """
    if wanted is None:
        return ""
    try:
        return read_ca(client, namespace, wanted, field=CA_FIELD)
    except ConfigurationError as error:
        raise BuildFailed(Reason.SOURCE_MISSING, str(error)) from error
    except KubeApiError as error:
        raise TemporaryError(f"{CA_FIELD}: ConfigMap {wanted.name} cannot be read: {error}") from error
