#!/usr/bin/env bash
# In a mount namespace of its own: puts a tree together with what it needs of this machine, and runs a command in it.
# Arguments: the tree's name, the cache, the checkout, "plain" or nothing, and the command. Started by tools/machine.
set -euo pipefail
tree=$1 cache=$2 project=$3 plain=$4
shift 4
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=tools/tree/settings.sh
. "$here/settings.sh"
folder=$PWD
outer_path=$PATH

# Paths below the folder of trees are relative: a cache with a comma or colon in its name would end the options of an overlay.
cd "$cache/machine"
mount -t tmpfs -o mode=755,size=80% "driverwright-$DRIVERWRIGHT_RUN" mnt
mkdir -p "mnt/$DRIVERWRIGHT_RUN"/{upper,work,root}
chmod 755 "mnt/$DRIVERWRIGHT_RUN/upper"
mount -t overlay driverwright \
    -o "lowerdir=$tree,upperdir=mnt/$DRIVERWRIGHT_RUN/upper,workdir=mnt/$DRIVERWRIGHT_RUN/work" "mnt/$DRIVERWRIGHT_RUN/root"
root=$cache/machine/mnt/$DRIVERWRIGHT_RUN/root

brought=()

# Has a folder or file of this machine under the same name in the tree: rw or ro.
bring() {
    local mode=$1 path=$2 one
    [[ -e $path && $path == /?* ]] || return 0
    for one in ${brought[@]+"${brought[@]}"}; do
        [[ $path == "$one" || $path == "$one"/* ]] && return 0
    done
    if [[ -d $path ]]; then
        mkdir -p "$root$path"
    else
        mkdir -p "$root$(dirname -- "$path")" && touch "$root$path"
    fi
    mount --bind "$path" "$root$path"
    [[ $mode == rw ]] || mount -o remount,bind,ro "$root$path"
    brought+=("$path")
}

# Has a file's content in the tree, whatever link it is here.
copy_in() {
    [[ -r $1 ]] || return 0
    mkdir -p "$root$(dirname -- "$2")"
    rm -f "$root$2"
    cat "$1" >"$root$2"
}

for place in /proc /sys /dev; do
    mount --rbind "$place" "$root$place"
done
# An engine that finds AppArmor or SELinux asks for their programs, which the tree does not have.
for place in /sys/kernel/security /sys/fs/selinux; do
    [[ ! -d $place ]] || mount -t tmpfs -o ro,size=4k none "$root$place"
done
copy_in /etc/resolv.conf /etc/resolv.conf
copy_in /etc/hosts /etc/hosts
copy_in /etc/hostname /etc/hostname
apt_settings >"$root/etc/apt/apt.conf.d/90machine"
bundle=$(ca_bundle) && copy_in "$bundle" /etc/ssl/certs/ca-certificates.crt
mkdir -p "$root$HOME"
bring rw "$project"
bring rw "$cache"
if repository=$(git -c safe.directory='*' -C "$project" rev-parse --path-format=absolute --git-common-dir 2>/dev/null); then
    bring ro "$repository"
fi
if [[ -n ${KUBEBUILDER_ASSETS-} ]]; then bring ro "$(realpath -s -- "$KUBEBUILDER_ASSETS")"; fi
if [[ -n ${DRIVERWRIGHT_ARTEFACTS-} ]]; then
    mkdir -p "$DRIVERWRIGHT_ARTEFACTS"
    bring rw "$(realpath -s -- "$DRIVERWRIGHT_ARTEFACTS")"
fi
archive_folder=${DRIVERWRIGHT_DEBIAN_ARCHIVE-}
if [[ $archive_folder == file:* ]]; then
    for word in $archive_folder; do bring ro "/${word#file:*/}"; done
fi

# pip: its settings, and the local folders that these name; an index of files links to its neighbours.
pip_settings=("${PIP_CONFIG_FILE-}" /etc/pip.conf /etc/xdg/pip/pip.conf "$HOME/.config/pip/pip.conf" "$HOME/.pip/pip.conf")
for file in "${pip_settings[@]}"; do
    if [[ -n $file && -f $file ]]; then copy_in "$file" "$file"; fi
done
pip_words=$({ cat "${pip_settings[@]}" 2>/dev/null || :; env | grep '^PIP_' || :; } | grep -oE '(file://)?/[^][:space:]"'\'',]+' || :)
for word in $pip_words; do
    path=${word#file://}
    [[ $path == /*/* && -e $path && ! -e $root$path ]] || continue
    parent=$(dirname -- "$path")
    if [[ $word == file://* && $parent == /*/* ]]; then bring ro "$parent"; else bring ro "$path"; fi
done

environment=(PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "HOME=$HOME" PYTHONUNBUFFERED=1)
while IFS='=' read -r -d '' name value; do
    case $name in
    SSL_CERT_FILE | *_CA_BUNDLE | GIT_SSL_CAINFO | PIP_CERT | NODE_EXTRA_CA_CERTS)
        environment+=("$name=/etc/ssl/certs/ca-certificates.crt")
        ;;
    SSL_CERT_DIR) environment+=("$name=/etc/ssl/certs") ;;
    TERM | COLUMNS | LINES | COLORTERM | NO_COLOR | FORCE_COLOR | CI | MAKEFLAGS | XDG_CACHE_HOME | KUBEBUILDER_ASSETS | \
        REGISTRY | TAG | MATRIX | NVIDIA | SLICE | TESTS | GOLDEN | DRIVERWRIGHT_* | DEMO_* | SOAK_* | HYPOTHESIS_* | PYTEST_* | PIP_* | \
        [a-z]*_proxy | *_PROXY | SOURCE_DATE_EPOCH) environment+=("$name=$value") ;;
    esac
done </proc/self/environ

if [[ -z $plain ]]; then
    copy_in /etc/os-release /etc/driverwright-machine/os-release
    environment[0]+=:$project/.venv-machine/bin
fi

cd "$root"
mkdir .outside
pivot_root . .outside
PATH=/usr/sbin:/usr/bin:/sbin:/bin
umount --lazy /.outside
rmdir /.outside
cd "$folder" 2>/dev/null || cd "$project"
PATH=$outer_path exec /usr/bin/env -i "${environment[@]}" "$@"
