#!/usr/bin/env bash
# Makes the virtual environment that every make target uses. Says what is missing and how to get it.
set -euo pipefail

fail() {
    printf 'driverwright: %s\n' "$1" >&2
    exit 1
}

command -v "$PYTHON" >/dev/null || fail "$PYTHON is not installed: apt-get install python3 python3-venv (as root)"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "Python 3.11 or newer is needed, $PYTHON is $("$PYTHON" -V): set PYTHON=/path/to/python3.11"

if ! "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        printf 'driverwright: installing python3-venv\n'
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes python3-venv >/dev/null
    else
        fail "$PYTHON has no venv module: apt-get install python3-venv (as root)"
    fi
fi

# Of all checkouts, in the machine tree and outside.
export PIP_CACHE_DIR="${PIP_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/driverwright/pip}"
began=$SECONDS
printf 'driverwright: installing Python packages into %s ...\n' "$VENV"
[ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV"
# A path, not setuptools' finder: that doubles what the start of every Python process takes.
"$VENV/bin/python" -m pip install -qq --disable-pip-version-check --config-settings editable_mode=compat \
    --editable '.[dev]' ||
    fail "pip could not install the packages; its own words are above"
printf 'driverwright: packages installed in %s s\n' "$((SECONDS - began))"
