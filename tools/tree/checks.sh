# shellcheck shell=bash
# Whether this machine can run a tree: each thing that is missing is one line with what to do, before anything is made.
# Sourced by tools/machine.
# shellcheck disable=SC2154

check_machine() {
    local kernel_and_machine identities
    kernel_and_machine=$(uname -sm)
    [[ $kernel_and_machine == 'Linux x86_64' ]] ||
        refuse "this machine is ${kernel_and_machine}: the demo and the tests run on Linux on x86_64 only"
    [[ $(id -u) == 0 ]] ||
        refuse "root is needed, for mounts, a container engine and a kubelet: run it with sudo or in a root shell"
    identities=$(awk 'NR == 1 { print $3 }' /proc/self/uid_map)
    ((identities == 4294967295)) ||
        refuse "this is a user namespace (a rootless container?), in which nothing real can be mounted:" \
            "run it as root of the machine, or in a rootful container with --privileged"
    case $(stat --file-system --format %T "$project") in
    v9fs | 9p | fuseblk)
        refuse "the checkout $project is on a disk of another system (under WSL: of Windows): clone it on a Linux disk, such as ~"
        ;;
    esac
    # bash finds files that cannot be run as well.
    [[ -x $(type -P debootstrap) ]] || refuse "debootstrap is not installed: $(how_to_install debootstrap)"
    [[ -r $keyring ]] ||
        refuse "the keys of Debian's archive, $keyring, are missing: $(how_to_install debian-archive-keyring)," \
            "or set DRIVERWRIGHT_DEBIAN_KEYRING=FILE"
}

how_to_install() {
    local manager
    for manager in apt-get dnf zypper pacman; do
        command -v "$manager" >/dev/null || continue
        case $manager in
        apt-get) printf 'apt-get update && apt-get install %s' "$1" ;;
        dnf) printf 'dnf install %s' "${1/debian-archive-keyring/debian-keyring}" ;;
        zypper) printf 'zypper install %s' "$1" ;;
        pacman) printf 'pacman -S %s' "$1" ;;
        esac
        return
    done
    printf 'install it with the package manager of this system'
}

# Mounting is tried and not asked about: what a file system or a container allows shows only then.
check_cache() {
    local trial status=0 kind
    ((${#cache} <= 50)) ||
        refuse "the name of the cache, $cache, has more than 50 characters: sockets below it would have no room;" \
            "set XDG_CACHE_HOME=FOLDER with a shorter one"
    mkdir -p "$trees" || refuse "the cache $cache cannot be made: set XDG_CACHE_HOME=FOLDER"
    trial=$(mktemp -d "$trees/.trial-XXXXXX")
    unshare --mount --propagation private -- bash -c "$try_mounts" - "$trial" >/dev/null 2>&1 || status=$?
    rm -rf "$trial"
    kind=$(stat --file-system --format %T "$cache")
    case $status in
    0) ;;
    12)
        refuse "no container engine can work in the cache $cache: on its file system ($kind) overlays cannot be mounted;" \
            "set XDG_CACHE_HOME=FOLDER with one on ext4, xfs or btrfs (in a container: a volume)"
        ;;
    13) refuse "the file system of the cache $cache is mounted nodev: set XDG_CACHE_HOME=FOLDER with one on another" ;;
    14) refuse "the file system of the cache $cache is mounted noexec: set XDG_CACHE_HOME=FOLDER with one on another" ;;
    *) refuse "this machine refuses to mount (in a container: run it with --privileged)" ;;
    esac
}

try_mounts='
cd "$1" && mkdir lower upper work merged || exit 11
mount -t tmpfs trial merged && umount merged || exit 11
mount -t overlay trial -o lowerdir=lower,upperdir=upper,workdir=work merged && umount merged || exit 12
mknod null c 1 3 && : >null || exit 13
printf "#!/bin/sh\n" >program && chmod 755 program && ./program || exit 14
'
