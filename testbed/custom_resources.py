"""A server of custom resources of a newer Kubernetes, beside a testbed's control plane.

It serves CustomResourceDefinitions and their objects, and nothing else. Who somebody is and what they may do, it asks
the testbed's API server; its objects are in the same etcd, below another prefix, so that neither sees the other's.
"""

from __future__ import annotations

from testbed.api import Api
from testbed.kubeconfig import kubeconfig_text, token_user, write_kubeconfig
from testbed.newer_kubernetes import CUSTOM_RESOURCES, NewerKubernetes
from testbed.ports import free_ports
from testbed.progress import Progress
from testbed.testbed import Testbed

_READY_TIMEOUT = 240.0
_ETCD_PREFIX = "/registry-of-newer"
_NOT_SERVED = (
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
)
"""Plugins whose own objects the testbed's API server does not serve in the version that they ask for."""


class CustomResources:
    """The server of one testbed, with which it ends."""

    def __init__(self, ground: Testbed, newer: NewerKubernetes) -> None:
        self._ground = ground
        self._newer = newer
        (self._port,) = free_ports(1)
        self.server = f"https://127.0.0.1:{self._port}"
        self.kubeconfig = ground.folder / "custom-resources.kubeconfig"
        self.api = Api(self.server, ground.admin_token, ground.ca_file)

    def bring_up(self, progress: Progress) -> None:
        """Start it and wait until it is ready."""
        with progress.step(f"Start the custom resources of Kubernetes {self._newer.release}") as step:
            self._ground.control_plane.authority.issue_files("custom-resources", CUSTOM_RESOURCES, hosts=["127.0.0.1"])
            user = token_user(self._ground.admin_token)
            write_kubeconfig(self.kubeconfig, kubeconfig_text(self.server, self._ground.ca_file.read_bytes(), user))
            self._ground.processes.spawn(CUSTOM_RESOURCES, self._command())
            self._ground.processes.wait_ready(CUSTOM_RESOURCES, self.api.is_ready, _READY_TIMEOUT, step)

    def end(self) -> None:
        """Stop it; what it has stored stays in etcd."""
        self._ground.processes.stop(CUSTOM_RESOURCES)

    def _command(self) -> list[str]:
        pki, kubeconfig = self._ground.folder / "pki", self._ground.kubeconfig
        return [
            str(self._newer.path(CUSTOM_RESOURCES)),
            f"--etcd-servers={self._ground.control_plane.etcd_server}",
            f"--etcd-prefix={_ETCD_PREFIX}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--tls-cert-file={pki}/custom-resources.crt",
            f"--tls-private-key-file={pki}/custom-resources.key",
            f"--client-ca-file={self._ground.ca_file}",
            *(f"--{what}kubeconfig={kubeconfig}" for what in ("", "authentication-", "authorization-")),
            # Otherwise it reads a ConfigMap with the authorities of clients that only a front proxy needs.
            "--authentication-skip-lookup",
            # Its objects are not served by the testbed's API server.
            "--enable-priority-and-fairness=false",
            f"--disable-admission-plugins={','.join(_NOT_SERVED)}",
        ]
