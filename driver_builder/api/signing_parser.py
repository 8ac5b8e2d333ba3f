"""What ``signing`` may hold, of a spec and of a kernel mapping: which Secrets modules and images are signed with. Pure.

Place in the flow: ``spec_parser`` calls it; the Secrets themselves are read by ``observe`` (certificates) and, during a
build, by ``signing_secrets`` (keys).
"""

from driver_builder.api.spec_reader import Reader
from driver_builder.model.build import Signing


def read_signing(parent: Reader) -> Signing | None:
    """Read the field ``signing`` of an object; None without one."""
    fields = parent.object("signing")
    key, certificate = fields.reference("keySecretRef"), fields.reference("certificateSecretRef")
    image_key = fields.reference("imageKeySecretRef")
    if not parent.has("signing"):
        return None
    if fields.has("keySecretRef") != fields.has("certificateSecretRef"):
        fields.wrong("keySecretRef and certificateSecretRef must be set together: set both to sign modules")
    elif not fields.has("keySecretRef") and not fields.has("imageKeySecretRef"):
        fields.wrong("names no key: set keySecretRef and certificateSecretRef, or imageKeySecretRef")
    return Signing(key_secret=key, certificate_secret=certificate, image_key_secret=image_key)
