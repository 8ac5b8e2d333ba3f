"""Kubeconfig files, as text: certificates and keys are carried inside, so that a file works wherever it is copied."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from testbed.pki import CertificateAuthority, KeyPair, write_private


def kubeconfig_text(server: str, ca: bytes, user: dict[str, str]) -> str:
    """Return a kubeconfig with one cluster and one user (JSON is YAML too)."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "ground", "cluster": {"server": server, "certificate-authority-data": _base64(ca)}}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "ground", "context": {"cluster": "ground", "user": "user"}}],
        "current-context": "ground",
    }
    return json.dumps(config, indent=1)


def token_user(token: str) -> dict[str, str]:
    """Return a user that presents a token."""
    return {"token": token}


def certificate_user(pair: KeyPair) -> dict[str, str]:
    """Return a user that presents a client certificate."""
    return {"client-certificate-data": _base64(pair.certificate), "client-key-data": _base64(pair.key)}


def node_kubeconfig(server: str, authority: CertificateAuthority, node_name: str) -> str:
    """Return the kubeconfig of a node's kubelet, which the Node authorizer knows by its certificate."""
    pair = authority.issue(f"system:node:{node_name}", organization="system:nodes")
    return kubeconfig_text(server, authority.file.read_bytes(), certificate_user(pair))


def write_kubeconfig(path: Path, text: str) -> Path:
    """Write a kubeconfig that only its owner may read."""
    write_private(path, text)
    return path


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
