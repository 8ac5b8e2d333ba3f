"""What drivers are built from besides their specs, as far as it is in the cluster: sources, templates, certificates.

Place in the flow: ``observe`` reads them from the API server, ``cli.offline`` from files. What one driver makes go
wrong is a value of its own.
"""

import base64
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from driver_builder.api.build_settings import ConfigMapKey, ConfigMapSource, SourceSpec
from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.base.boundary import contained
from driver_builder.builds.signing_secrets import SigningSecrets
from driver_builder.model.build import OwnTemplate, SourceFiles
from driver_builder.model.driver_key import DriverKey
from driver_builder.registry.named_objects import ReferenceNotFound, read_config_map, read_text
from driver_builder.snapshot.snapshot import Certificate, CertificateMissing, Source, SourceMissing
from kube_api.client import Object, Reader


class DriverInputs:
    """Reads what specs name; ``reader`` has the ConfigMaps and Secrets."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._files: dict[str, tuple[Object, SourceFiles | SourceMissing]] = {}
        """The files of ConfigMaps, by namespace and name, with the objects that they were read from."""

    def sources(self, drivers: Iterable[DriverContainer]) -> Iterator[tuple[DriverKey, Source]]:
        """Give the sources, by driver key."""
        for driver in drivers:
            if isinstance(driver.spec, DriverSpec):
                yield driver.key, self._source(driver, driver.spec.source)

    def templates(self, drivers: Iterable[DriverContainer]) -> Iterator[tuple[DriverKey, OwnTemplate | SourceMissing]]:
        """Give the custom templates, by driver key."""
        for driver in drivers:
            if isinstance(driver.spec, DriverSpec) and driver.spec.build.template_config_map is not None:
                yield driver.key, self._template(driver.namespace, driver.spec.build.template_config_map)

    def certificates(self, drivers: Iterable[DriverContainer]) -> Iterator[tuple[str, Certificate]]:
        """Give the certificates of modules, by namespace and name of the Secret."""
        secrets = SigningSecrets(self._reader)
        for driver in drivers:
            wanted = driver.spec.certificate_secrets if isinstance(driver.spec, DriverSpec) else ()
            for name in wanted:
                yield (
                    f"{driver.namespace}/{name}",
                    contained(
                        "driver",
                        driver.key,
                        partial(secrets.certificate, driver.namespace, name),
                        lambda error: CertificateMissing(message=str(error), is_invalid=True),
                    ),
                )

    def sweep(self, sources: Mapping[DriverKey, Source]) -> None:
        """Forget the files of ConfigMaps that are none of these sources."""
        in_use = set(map(id, sources.values()))
        self._files = {place: known for place, known in self._files.items() if id(known[1]) in in_use}

    def _source(self, driver: DriverContainer, source: SourceSpec) -> Source:
        if not isinstance(source, ConfigMapSource):
            return source
        return contained(
            "driver",
            driver.key,
            lambda: self._config_map(driver.namespace, source.name),
            lambda error: SourceMissing(message=str(error)),
        )

    def _template(self, namespace: str, wanted: ConfigMapKey) -> OwnTemplate | SourceMissing:
        try:
            text = read_text(self._reader, namespace, wanted, field="spec.build.templateConfigMap")
        except ReferenceNotFound as error:
            return SourceMissing(message=str(error))
        return OwnTemplate(place=f"ConfigMap {namespace}/{wanted.name}/{wanted.key}", text=text)

    def _config_map(self, namespace: str, name: str) -> SourceFiles | SourceMissing:
        try:
            obj = read_config_map(self._reader, namespace, name, field="spec.source.configMap")
        except ReferenceNotFound as error:
            return SourceMissing(message=str(error))
        known = self._files.get(f"{namespace}/{name}")
        if known is None or known[0] is not obj:
            known = self._files[f"{namespace}/{name}"] = (obj, _files(namespace, name, obj))
        return known[1]


def _files(namespace: str, name: str, obj: Object) -> SourceFiles | SourceMissing:
    files = {path: text.encode() for path, text in (obj.get("data") or {}).items()}
    files |= {path: base64.b64decode(data) for path, data in (obj.get("binaryData") or {}).items()}
    if not files:
        return SourceMissing(message=f"spec.source.configMap: ConfigMap {namespace}/{name} is empty")
    return SourceFiles(files=files)
