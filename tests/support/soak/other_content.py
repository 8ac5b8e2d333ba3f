"""What a server gives in the place of its content: damaged, or of the right form and another digest. Pure."""

from __future__ import annotations

import json

from driver_builder.model.images import MODULES_LABEL


def corrupted(content: bytes) -> bytes:
    """Make something of the same length that is neither JSON nor what its digest says."""
    if content.startswith((b"{", b"[")):
        return b"<" + content[1:]
    middle = len(content) // 2
    return content[:middle] + bytes(byte ^ 0x55 for byte in content[middle : middle + 16]) + content[middle + 16 :]


def other_content(content: bytes) -> bytes:
    """Make another manifest, or another config: that of an image with other modules."""
    obj = json.loads(content)
    labels = (obj.get("config") or {}).get("Labels") or {}
    if MODULES_LABEL in labels:
        modules = json.loads(labels[MODULES_LABEL])
        labels[MODULES_LABEL] = json.dumps([{**module, "identity": module["identity"][::-1]} for module in modules])
    else:
        obj["annotations"] = {**(obj.get("annotations") or {}), "soak": "other content"}
    return json.dumps(obj).encode()
