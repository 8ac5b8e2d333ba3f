#!/bin/sh
# Runs in the container `build` of a build Job: builds /context and leaves in /out what the container `hand-over` takes:
# image.tar, and of the build stage's /facts what is there. Its arguments are more options for `buildah bud`.
set -eu

mkdir -p /building/context /building/facts /building/tmp
tar -xzf /context/context.tar.gz -C /building/context
export TMPDIR=/building/tmp CONTAINERS_REGISTRIES_CONF=/context/registries.conf

# overlay, where the node's kernel lets a user namespace mount it (5.11); vfs copies every layer whole, and needs nothing.
storage=vfs
if command buildah --root /building/probe --runroot /building/probe/run --storage-driver overlay info >/building/probe.log 2>&1; then
    storage=overlay
fi
echo "storage driver: $storage"
buildah() {
    command buildah --root /building/storage --runroot /building/run --storage-driver "$storage" "$@"
}

# chroot: RUN needs neither a container runtime nor cgroups. Docker's format, for SHELL. Without layers: nothing would
# find them in this cache.
buildah bud --isolation chroot --format docker --layers=false --identity-label=false --timestamp 0 \
    --volume /building/facts:/driverwright-facts "$@" --tag driver /building/context
for fact in Module.symvers compiler; do
    [ ! -f "/building/facts/$fact" ] || cp "/building/facts/$fact" /out/
done
buildah push --quiet driver docker-archive:/out/image.tar
