"""``devicePlugin.dra``: a vendor's driver of dynamic resource allocation (DRA) in place of a device plugin. Pure.

The rest of its container is that of ``image``: see :mod:`driver_builder.objects.dra_plugin`.
"""

from driver_builder.api.environment import read_env
from driver_builder.api.spec_reader import Reader
from driver_builder.api.spec_rules import DRA_DRIVER, OBJECT_NAME, STAGE_ENV_NAME
from driver_builder.api.stage_settings import DraSettings

_ELSEWHERE = {
    "driverName": "write it to driver",
    "deviceClasses": "they are objects of the cluster: write DeviceClasses yourself (docs/stages.md)",
}
"""What KMM has there, and where it belongs."""


def read_dra(plugin: Reader) -> DraSettings | None:
    """Read ``dra``; None where it is not given. Problems are noted."""
    dra = plugin.object("dra")
    for name, words in _ELSEWHERE.items():
        if dra.has(name):
            dra.wrong(f"there is no such field: {words}", name)
    if not plugin.has("dra"):
        return None
    return DraSettings(
        driver=dra.needed("driver", DRA_DRIVER),
        account=dra.needed("serviceAccountName", OBJECT_NAME),
        env=read_env(dra, STAGE_ENV_NAME),
    )
