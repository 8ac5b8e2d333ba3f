#!/bin/sh
# Runs in the container `build` of a build Job: builds /context and leaves in /out what the container `hand-over` takes:
# image.tar, and of the build stage's /facts what is there. Its arguments are more options for `buildah bud`; ARCHIVE is
# the form of image.tar.
set -eu
# shellcheck source=driver_builder/builds/job/storage.sh
. /context/storage.sh

echo "storage driver: $storage"
if [ -e /building/toolchain.missing ]; then
    cat /building/toolchain.log
    exit 125
fi
# shellcheck source=driver_builder/builds/job/proxy.sh
. /context/proxy.sh
mkdir -p /building/context /building/facts
tar -xzf /context/context.tar.gz -C /building/context
# Where the commands of the build look for them (driver_builder/builds/templates/trust.py).
[ ! -e /build-ca/ca.crt ] || cp /build-ca/ca.crt /building/facts/

# chroot: RUN needs neither a container runtime nor cgroups. Docker's format, for SHELL. Without layers: nothing would
# find them in this cache.
buildah bud --isolation chroot --format docker --layers=false --identity-label=false --timestamp 0 \
    --volume /building/facts:/driverwright-facts "$@" --tag driver /building/context
for fact in Module.symvers compiler; do
    [ ! -f "/building/facts/$fact" ] || cp "/building/facts/$fact" /out/
done
buildah push --quiet driver "${ARCHIVE:-docker-archive}:/out/image.tar"
