#!/bin/bash
# Which kernels a build in this base image can get headers of, for SUSE Linux Enterprise and openSUSE. What is printed,
# and the exit code: the top of apt.sh. All in bash: the base image may have nothing else.
set -euo pipefail
export LC_ALL=C.UTF-8

zypper --non-interactive refresh || {
    echo "driverwright: a repository of the base image cannot be reached"
    exit 67
}
# The last number of a package's version counts its rebuilds, uname -r does not have it: 6.4.0-150600.23.25.1 is of
# 6.4.0-150600.23.25-default.
{ zypper --non-interactive search --details --type package "kernel-*-devel" || echo "there are no headers"; } | tr -d " " |
    while IFS="|" read -r _ package _ version _; do
        flavour=${package#kernel-}
        case "$package" in
            kernel-*-devel) echo "driverwright-kernel: ${version%.*}-${flavour%-devel}" ;;
        esac
    done
zypper --non-interactive clean --all
