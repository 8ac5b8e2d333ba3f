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
# The password of a proxy as a URL has it: each byte as %XX. buildah gives these variables to every RUN, and writes them
# to no image.
escaped() {
    printf %s "$(cat "/proxy/$1")" | od -An -v -tx1 | tr -d ' \n' | sed 's/../%&/g'
}
if [ -e /proxy/password ]; then
    user="$(escaped username):$(escaped password)"
    [ -z "${HTTP_PROXY:-}" ] || export HTTP_PROXY="${HTTP_PROXY%%://*}://$user@${HTTP_PROXY#*://}"
    [ -z "${HTTPS_PROXY:-}" ] || export HTTPS_PROXY="${HTTPS_PROXY%%://*}://$user@${HTTPS_PROXY#*://}"
    [ -z "${HTTP_PROXY:-}" ] || export http_proxy="$HTTP_PROXY"
    [ -z "${HTTPS_PROXY:-}" ] || export https_proxy="$HTTPS_PROXY"
fi
mkdir -p /building/context /building/facts
tar -xzf /context/context.tar.gz -C /building/context

# chroot: RUN needs neither a container runtime nor cgroups. Docker's format, for SHELL. Without layers: nothing would
# find them in this cache.
buildah bud --isolation chroot --format docker --layers=false --identity-label=false --timestamp 0 \
    --volume /building/facts:/driverwright-facts "$@" --tag driver /building/context
for fact in Module.symvers compiler; do
    [ ! -f "/building/facts/$fact" ] || cp "/building/facts/$fact" /out/
done
buildah push --quiet driver "${ARCHIVE:-docker-archive}:/out/image.tar"
