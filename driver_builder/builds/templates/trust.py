"""A Dockerfile whose commands trust further CAs, and no layer, history or cached step that has them. Pure.

Place in the flow: builders change a rendered Dockerfile by :func:`trusting`, and give its commands the certificates: an
engine by variables that it knows by name (:func:`variables`), a Job as a file of a volume. Each command is run by a
script that writes the certificates to a folder of its own, names that to package managers, curl and git, and removes it
before the command ends.
"""

import json
import re

from driver_builder.base.errors import ConfigurationError
from driver_builder.builds.templates.templates import FACTS_VOLUME
from driver_builder.model.build_proxy import CA_FIELD

CA_FILE = f"{FACTS_VOLUME}/ca.crt"
"""Where the certificates are in a Job."""

_NAMES = ("FTP_PROXY", "ftp_proxy")
"""Engines give these to every command and write them to no history; the script unsets them, so that no program
sees them."""
_MOST_EACH = 120_000
"""Characters. Linux passes no variable of more than 128 KiB to a program."""
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----")

_SCRIPT = f"""\
d=$(mktemp -d) && chmod 0755 "$d" || exit
if [ -r {CA_FILE} ]; then cat {CA_FILE}; else printf "%s%s\\n" "$FTP_PROXY" "$ftp_proxy"; fi >"$d/own.crt"
unset FTP_PROXY ftp_proxy
for f in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem; do
  [ ! -r "$f" ] || {{ cat "$f" && echo; break; }}
done >"$d/ca.crt"
cat "$d/own.crt" >>"$d/ca.crt"
echo "Acquire::https::CaInfo \\"$d/ca.crt\\";" >"$d/apt.conf"
export APT_CONFIG="$d/apt.conf" CURL_CA_BUNDLE="$d/ca.crt" GIT_SSL_CAINFO="$d/ca.crt" SSL_CERT_FILE="$d/ca.crt"
for p in dnf dnf5 yum; do
  [ -x "/usr/bin/$p" ] || continue
  printf "%s\\n" "#!/bin/sh" "exec /usr/bin/$p --setopt=sslcacert=$d/ca.crt \\"\\$@\\"" >"$d/$p"
  chmod 0755 "$d/$p"
done
PATH="$d:$PATH" l= n=0
if [ -x /usr/bin/zypper ] && command -v openssl >/dev/null; then
  while read -r line; do
    case "$line" in *"BEGIN CERTIFICATE"*) n=$((n + 1)) ;; esac
    echo "$line" >>"$d/$n.pem"
  done <"$d/own.crt"
  while [ "$n" -gt 0 ]; do
    h=/etc/ssl/certs/$(openssl x509 -noout -hash -in "$d/$n.pem") i=0
    while [ -e "$h.$i" ]; do i=$((i + 1)); done
    ln -s "$d/$n.pem" "$h.$i" && l="$l $h.$i"
    n=$((n - 1))
  done
fi
"$@" && c=0 || c=$?
rm -rf "$d" $l && exit "$c"
"""
"""Runs the command that its arguments are. A layer never has the certificates: where they cannot be removed, it fails.

dnf has an option for a CA and no variable, so programs of its names that add the option come first in PATH. zypper has
neither: it looks into /etc/ssl/certs, by the hash of a name.
"""

_RUNNER = ("/bin/sh", "-c", _SCRIPT, "sh")
_DEFAULT_SHELL = ("/bin/sh", "-c")
_FROM = re.compile(r"FROM\s+(?P<base>\S+)(?:\s+AS\s+(?P<name>\S+))?\s*", re.IGNORECASE)
_LIST = re.compile(r"(?P<instruction>SHELL|RUN)\s+(?P<words>\[.*\])\s*", re.IGNORECASE)
_RUN = re.compile(r"RUN\s", re.IGNORECASE)


def trusting(dockerfile: str) -> str:
    """Return a Dockerfile of which every command is run by the script; all else in it stays.

    A command without a shell is run by it as well, and a stage without SHELL gets one before its first command.
    """
    lines: list[str] = []
    ready: set[str] = set()
    name, is_ready, goes_on = "", False, False
    for line in dockerfile.splitlines():
        words = None if goes_on else _words(line)
        if not goes_on and (begin := _FROM.fullmatch(line)):
            name, is_ready = (begin["name"] or "").lower(), begin["base"].lower() in ready
        elif words is not None:
            instruction, given = words
            is_ready = is_ready or instruction == "SHELL"
            line = f"{instruction} {json.dumps([*_RUNNER, *given])}"  # noqa: PLW2901 - the line that runs the same
        elif not goes_on and _RUN.match(line) and not is_ready:
            lines.append(f"SHELL {json.dumps([*_RUNNER, *_DEFAULT_SHELL])}")
            is_ready = True
        if is_ready and name:
            ready.add(name)
        if not line.lstrip().startswith("#"):
            goes_on = line.rstrip().endswith("\\")
        lines.append(line)
    return "\n".join([*lines, ""])


def variables(pem: str) -> dict[str, str]:
    """Return what an engine gives to the commands of a build, without what stands between certificates.

    Raises:
        ConfigurationError: there are more certificates than that takes.
    """
    text = "\n".join(_CERTIFICATE.findall(pem))
    if len(text) > 2 * _MOST_EACH:
        raise ConfigurationError(
            f"{CA_FIELD}: the certificates have {len(text)} characters; for a build with an engine the limit is"
            f" {2 * _MOST_EACH}: leave out those that the base images have, or set spec.build.builder: job"
        )
    return dict(zip(_NAMES, (text[:_MOST_EACH], text[_MOST_EACH:]), strict=True))


def runner() -> list[str]:
    """Return what stands before a command that is to be run by the script."""
    return list(_RUNNER)


def _words(line: str) -> tuple[str, list[str]] | None:
    """Return a SHELL or RUN instruction with a list of words."""
    match = _LIST.fullmatch(line)
    if match is None:
        return None
    try:
        words = json.loads(match["words"])
    except ValueError:
        return None
    return match["instruction"].upper(), [str(word) for word in words]
