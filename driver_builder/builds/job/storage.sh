# shellcheck shell=sh
# What `pull.sh` and `build.sh` have in common: where buildah keeps images, for all containers of a build's pod.
mkdir -p /building/tmp
export TMPDIR=/building/tmp CONTAINERS_REGISTRIES_CONF=/context/registries.conf

# buildah 1.43 does nothing where it has no netavark, also for builds without a network of their own, which never run it.
mkdir -p /building/helpers
printf '#!/bin/sh\nexit 1\n' >/building/helpers/netavark
chmod 755 /building/helpers/netavark
printf '[engine]\nhelper_binaries_dir = ["/building/helpers"]\n' >/building/containers.conf
export CONTAINERS_CONF_OVERRIDE=/building/containers.conf

# overlay, where the node's kernel lets a user namespace mount it (5.11); vfs copies every layer whole, and needs nothing.
storage=vfs
if command buildah --root /building/probe --runroot /building/probe/run --storage-driver overlay info >/building/probe.log 2>&1; then
    storage=overlay
fi
buildah() {
    command buildah --root /building/storage --runroot /building/run --storage-driver "$storage" "$@"
}
