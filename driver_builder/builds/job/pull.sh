#!/bin/sh
# Runs in the container `toolchain` of a build Job, before `build`: pulls the toolchain $1 with the registry's password,
# which `build` never sees, and gives it the local name $2. Further arguments are options for `buildah pull`. A failure
# is for `build` to print: its log is the one that is read.
set -eu
# shellcheck source=driver_builder/builds/job/storage.sh
. /context/storage.sh

reference=$1
name=$2
shift 2
pull() {
    image=$(buildah pull --quiet "$@" "docker://$reference") && buildah tag "$image" "$name"
}
if ! pull "$@" 2>/building/toolchain.log; then
    touch /building/toolchain.missing
fi
