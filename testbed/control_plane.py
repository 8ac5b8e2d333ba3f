"""A real Kubernetes control plane on 127.0.0.1: etcd, API server, controller manager and, for pods, the scheduler."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from testbed import kube_release, kubelet_proxy
from testbed.api import Api
from testbed.errors import TestbedError
from testbed.kube_binaries import KubeBinaries
from testbed.kubeconfig import kubeconfig_text, token_user, write_kubeconfig
from testbed.pki import CertificateAuthority, create_service_account_keys, write_private
from testbed.ports import accepts_connections
from testbed.process import Processes
from testbed.progress import Progress, Step

PACKAGES = ("etcd-server",)
PORTS = ("etcd", "etcd-peer", "api", "controller-manager", "scheduler")
# A guest reaches the host's 127.0.0.1 as 10.0.2.2: QEMU's user network.
SERVER_NAMES = (
    "127.0.0.1",
    "10.0.2.2",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "10.96.0.1",
)
_READY_TIMEOUT = 240.0
_NO_TOKEN_SECRETS = 24
"""The first release that keeps no token of an account in a Secret."""
_SERVICE_RANGE = "10.96.0.0/16"


class ControlPlane:
    """The control plane of one testbed; each component can be stopped, killed and started again by its name."""

    def __init__(
        self,
        processes: Processes,
        binaries: KubeBinaries,
        ports: Mapping[str, int],
        admin_token: str,
        *,
        scheduler: bool,
        admission: Sequence[str] = (),
    ) -> None:
        self._processes = processes
        self._binaries = binaries
        self._ports = ports
        self._folder = processes.folder
        self._token = admin_token
        self._scheduler = scheduler
        self._admission = ("NodeRestriction", *admission)
        self.api_port = ports["api"]
        self.api_server = f"https://127.0.0.1:{self.api_port}"
        self.kubeconfig = self._folder / "admin.kubeconfig"
        self.ca_file = self._folder / "pki" / "ca.crt"
        self.kubelet_proxy_socket = self._folder / "kubelets.sock"

    @property
    def authority(self) -> CertificateAuthority:
        """The testbed's certificate authority."""
        return CertificateAuthority(self._folder / "pki")

    @property
    def api(self) -> Api:
        """The API server, as the testbed itself asks it."""
        return Api(self.api_server, self._token, self.ca_file)

    @property
    def etcd_server(self) -> str:
        """The address of etcd."""
        return f"http://127.0.0.1:{self._ports['etcd']}"

    @property
    def components(self) -> tuple[str, ...]:
        """The names of the components, in the order in which they start."""
        names = ("kubelet-proxy", "etcd", "kube-apiserver", "kube-controller-manager")
        return (*names, "kube-scheduler") if self._scheduler else names

    def bring_up(self, progress: Progress) -> None:
        """Make certificates and files, start every component, and wait until pods could be created."""
        with progress.step(f"Start the control plane of Kubernetes {self._binaries.release}") as step:
            self._write_files()
            for name in self.components:
                step.detail(name)
                self._processes.spawn(name, self._command(name))
                if name in ("etcd", "kube-apiserver"):
                    self._wait_ready(name, step)
            self._wait_ready("kube-controller-manager", step)

    def stop(self, name: str) -> None:
        """End a component in an orderly way."""
        self._processes.stop(self._known(name))

    def kill(self, name: str) -> None:
        """End a component at once (SIGKILL)."""
        self._processes.kill(self._known(name))

    def start(self, name: str) -> None:
        """Start a stopped component again, with the same arguments, and wait until it is ready."""
        self._processes.start_again(self._known(name))
        self._wait_ready(name)

    def _known(self, name: str) -> str:
        if name not in self.components:
            raise TestbedError(f"no component {name!r}", hint=f"there are {', '.join(self.components)}")
        return name

    def _wait_ready(self, name: str, step: Step | None = None) -> None:
        checks: dict[str, Callable[[], bool]] = {
            "etcd": lambda: accepts_connections(self._ports["etcd"]),
            "kube-apiserver": self.api.is_ready,
            "kube-controller-manager": self._has_service_accounts,
        }
        if check := checks.get(name):
            self._processes.wait_ready(name, check, _READY_TIMEOUT, step)

    def _has_service_accounts(self) -> bool:
        # Without it, and before 1.24 its token, the first pod of a namespace is refused.
        account = self.api.get("/api/v1/namespaces/default/serviceaccounts/default")
        return account is not None and (bool(account.get("secrets")) or self._binaries.minor >= _NO_TOKEN_SECRETS)

    def _write_files(self) -> None:
        pki = self._folder / "pki"
        authority = self.authority
        authority.issue_files("apiserver", "kube-apiserver", hosts=SERVER_NAMES)
        authority.issue_files("kubelet-client", "kube-apiserver", organization="system:masters")
        create_service_account_keys(pki)
        write_private(self._folder / "tokens.csv", tokens_csv({self._token: ("admin", "system:masters")}))
        (self._folder / "egress.json").write_text(egress_configuration(self.kubelet_proxy_socket))
        ca = self.ca_file.read_bytes()
        write_kubeconfig(self.kubeconfig, kubeconfig_text(self.api_server, ca, token_user(self._token)))

    def _command(self, name: str) -> list[str]:
        commands: dict[str, Callable[[], list[str]]] = {
            "etcd": self._etcd,
            "kube-apiserver": self._api_server,
            "kube-controller-manager": self._controller_manager,
            "kube-scheduler": self._kube_scheduler,
            "kubelet-proxy": lambda: [sys.executable, kubelet_proxy.__file__, str(self.kubelet_proxy_socket)],
        }
        return commands[name]()

    def _etcd(self) -> list[str]:
        client = self.etcd_server
        peer = f"http://127.0.0.1:{self._ports['etcd-peer']}"
        return [
            self._binaries.etcd,
            f"--data-dir={self._folder}/etcd",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            # Nothing here is to survive the machine.
            "--unsafe-no-fsync",
        ]

    def _api_server(self) -> list[str]:
        pki = self._folder / "pki"
        return [
            str(self._binaries.path("kube-apiserver")),
            f"--etcd-servers={self.etcd_server}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self.api_port}",
            f"--tls-cert-file={pki}/apiserver.crt",
            f"--tls-private-key-file={pki}/apiserver.key",
            f"--client-ca-file={self.ca_file}",
            f"--token-auth-file={self._folder}/tokens.csv",
            "--authorization-mode=Node,RBAC",
            f"--enable-admission-plugins={','.join(self._admission)}",
            "--allow-privileged=true",
            f"--service-cluster-ip-range={_SERVICE_RANGE}",
            f"--service-account-key-file={pki}/sa.pub",
            f"--service-account-signing-key-file={pki}/sa.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--api-audiences=https://kubernetes.default.svc",
            # The kubernetes service cannot lead to 127.0.0.1; pods get the address in their environment.
            "--endpoint-reconciler-type=none",
            f"--egress-selector-config-file={self._folder}/egress.json",
            "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-certificate-authority={self.ca_file}",
            f"--kubelet-client-certificate={pki}/kubelet-client.crt",
            f"--kubelet-client-key={pki}/kubelet-client.key",
        ]

    def _controller_manager(self) -> list[str]:
        pki = self._folder / "pki"
        return [
            str(self._binaries.path("kube-controller-manager")),
            f"--kubeconfig={self.kubeconfig}",
            f"--service-account-private-key-file={pki}/sa.key",
            "--use-service-account-credentials",
            # Service account tokens come with this authority, so pods can verify 127.0.0.1.
            f"--root-ca-file={self.ca_file}",
            "--leader-elect=false",
            "--controllers=*,-nodeipam,-route,-service,-cloud-node-lifecycle",
            f"--secure-port={self._ports['controller-manager']}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self._folder}/pki/controller-manager",
            *kube_release.flags("kube-controller-manager", self._binaries.minor),
        ]

    def _kube_scheduler(self) -> list[str]:
        return [
            str(self._binaries.path("kube-scheduler")),
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            f"--secure-port={self._ports['scheduler']}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self._folder}/pki/scheduler",
            *kube_release.flags("kube-scheduler", self._binaries.minor),
        ]


def tokens_csv(users: Mapping[str, tuple[str, str]]) -> str:
    """Return a static token file: token -> (user, group)."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for token, (user, group) in users.items():
        writer.writerow([token, user, user, group])
    return text.getvalue()


def egress_configuration(socket: Path) -> str:
    """Return the configuration that leads the API server's connections to kubelets through the proxy."""
    connection = {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": str(socket)}}}
    config = {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": connection}],
    }
    return json.dumps(config)
