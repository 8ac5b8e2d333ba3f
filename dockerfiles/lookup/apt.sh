#!/bin/bash
# Which kernels a build in this base image can get headers of, for Debian and Ubuntu, all its flavours. Its one argument
# is the family: debian or ubuntu. An engine runs it in a build, a Job as its command
# (driver_builder/prebuild/kernel_script.py). Both read the lines "driverwright-kernel: RELEASE" that it prints.
#
# Exit code: 67 archive not reachable. Nothing of it is kept: an engine commits what a build leaves.
set -euo pipefail
family=$1
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8

update() {
    apt-get update -q -o APT::Update::Error-Mode=any -o Acquire::Languages=none
}

# The security archive is found as in dockerfiles/driver/debian.Dockerfile.j2: what is found here is what a build finds.
add_security_archive() {
    local targets codename keyring signed_by added
    targets=$(apt-get indextargets --format "\$(RELEASE) \$(REPO_URI)" "Created-By: Packages" "Origin: Debian")
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    signed_by=$([ ! -e "$keyring" ] || echo "[signed-by=$keyring] ")
    added=/etc/apt/sources.list.d/driverwright-security.list
    case "$targets" in *"$codename-security"*) return 0 ;; esac
    echo "$targets" | while read -r release uri; do
        if [ "$release" = "$codename" ]; then
            echo "deb $signed_by${uri%/}-security $codename-security main" >"$added"
        fi
    done
    update || { rm -f "$added"; update; }
}

update || { echo "driverwright: apt-get update failed: an archive of the base image cannot be reached"; exit 67; }
if [ "$family" = debian ]; then
    add_security_archive
fi
# An archive gets the headers of a kernel, and its image without a signature, hours before the signed image. Until that is
# there no node can move to it, and it does not count.
releases() { apt-cache search --names-only "^linux-$1-(unsigned-)?[0-9]" | sed -n "s/^linux-$1-\([^ ]*\) .*/\1/p"; }
images=$(releases image)
headers=$(releases headers)
for release in $headers; do
    case $'\n'"$images"$'\n' in
        *$'\n'"$release"$'\n'*) ;;
        *$'\n'"$release-unsigned"$'\n'* | *$'\n'"unsigned-$release"$'\n'*) continue ;;
    esac
    echo "driverwright-kernel: $release"
done
rm -rf /var/lib/apt/lists/*
