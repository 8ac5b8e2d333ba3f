# shellcheck shell=bash
# Makes a tree, once for a list of packages, an archive and a week. Sourced by tools/machine.
# shellcheck disable=SC2154

# Sets tree to the name of a tree below $trees that is whole.
provide_tree() {
    local digest week name fresh lock
    find_archive
    digest=$(printf '%s\n' "$suite" "$packages" "$archive" "$security_archive" "$(declare -f "${parts_of_build[@]}")" | sha256sum)
    name=$suite-${digest:0:12}
    week=$(date -u +%G-%V)
    tree=$name-$week
    [[ -d $trees/$tree ]] && return
    exec {lock}>"$trees/.lock"
    flock --nonblock "$lock" || { say "another run makes a tree: waiting" && flock "$lock"; }
    if [[ ! -d $trees/$tree ]]; then
        fresh=$(mktemp -d "$trees/.fresh-XXXXXX")
        # Ended in the midst, it leaves nothing: mounts and processes are those of namespaces.
        trap 'rm -rf --one-file-system "$fresh"' EXIT
        if make_tree "$fresh"; then
            mv -- "$fresh" "$trees/$tree"
        else
            use_older "$name"
        fi
        trap - EXIT
        rm -rf --one-file-system "$fresh"
        forget_trees
    fi
    exec {lock}>&-
}

make_tree() {
    local log=$trees/build.log began=$SECONDS
    say "making the tree of Debian $suite (once a week; 2 to 4 minutes; log: $log)"
    if in_namespaces "$1" >"$log" 2>&1; then
        say "made in $((SECONDS - began)) s: $(du --summarize --human-readable --apparent-size "$1" | cut -f 1)"
        return
    fi
    say "the tree was not made; the log ends with:"
    tail -n 12 "$log" | sed 's/^/  /' >&2
    say "it was made from ${archive:-the default archive of debootstrap} with suite $suite and" \
        "${security_archive:-its security archive}; DRIVERWRIGHT_DEBIAN_ARCHIVE=\"URI [SECURITY-URI]\" names another"
    return 1
}

# The functions that decide what a tree holds; one that is changed makes another tree.
parts_of_build=(sources_text ca_bundle apt_settings fill_tree)

# Runs them as a program of its own, process 1 of a namespace.
in_namespaces() {
    setpriv --pdeathsig KILL -- \
        unshare --mount --propagation private --pid --fork --kill-child --mount-proc -- bash -euo pipefail -c "
            $(declare -p suite packages archive security_archive keyring)
            $(declare -f "${parts_of_build[@]}")
            fill_tree ${1@Q}"
}

fill_tree() {
    local root=$1 main
    umask 022
    chmod 755 "$root"
    # An empty URI is debootstrap's own default.
    debootstrap --variant=minbase --keyring="$keyring" --include=ca-certificates "$suite" "$root" ${archive:+"$archive"}
    main=${archive:-$(sed -nE 's/^deb (\[[^]]*\] )?([^ ]+) .*/\2/p;T;q' "$root/etc/apt/sources.list")}
    main=${main%/}
    if [[ $keyring != /usr/share/keyrings/debian-archive-keyring.gpg ]]; then
        cat "$keyring" >"$root/usr/share/keyrings/debian-archive-keyring.gpg"
    fi
    sources_text "$main" "${security_archive:-${main%/debian}/debian-security}" >"$root/etc/apt/sources.list"
    apt_settings >"$root/etc/apt/apt.conf.d/90machine"
    local bundle
    bundle=$(ca_bundle) && cat "$bundle" >"$root/etc/ssl/certs/ca-certificates.crt"
    printf '%s\n' force-unsafe-io 'path-exclude=/usr/share/man/*' 'path-exclude=/usr/share/locale/*' \
        'path-exclude=/usr/share/doc/*' 'path-include=/usr/share/doc/*/copyright' >"$root/etc/dpkg/dpkg.cfg.d/90machine"
    # No service is started: the tree has no init.
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod 755 "$root/usr/sbin/policy-rc.d"
    mount -t proc proc "$root/proc"
    # shellcheck disable=SC2086
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} ${no_proxy:+no_proxy="$no_proxy"} \
        chroot "$root" sh -euc '
            apt-get update
            apt-get dist-upgrade --yes
            apt-get install --yes --no-install-recommends "$@"
            apt-get clean' - $packages
    umount "$root/proc"
    rm -f "$root/usr/sbin/policy-rc.d"
    if command -v git >/dev/null && [[ -e $root/usr/bin/git ]]; then
        printf '[safe]\n\tdirectory = *\n' >"$root/etc/gitconfig"
    fi
}

# An archive that is away for a day ends nothing: last week's tree has the same packages.
use_older() {
    local older
    older=$(find "$trees" -maxdepth 1 -type d -name "$1-*" -printf '%f\n' | sort | tail -n 1)
    [[ -n $older ]] || exit 1
    say "going on with the tree of week ${older: -7}"
    tree=$older
}

# Removes trees that nothing uses: those of other weeks, and with other lists, suites and archives those of a fortnight ago.
forget_trees() {
    local old
    while read -r old; do
        [[ $old == "$tree" || $old == mnt ]] && continue
        grep --quiet --no-messages --fixed-strings "lowerdir=$old," /proc/[0-9]*/mountinfo && continue
        [[ $old == "${tree%-????-??}"-* || -z $(find "$trees/$old" -maxdepth 0 -mtime -14) ]] || continue
        rm -rf --one-file-system "${trees:?}/$old"
    done < <(find "$trees" -mindepth 1 -maxdepth 1 -type d -not -name '.*' -printf '%f\n')
}
