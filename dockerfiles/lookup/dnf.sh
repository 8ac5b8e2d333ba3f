#!/bin/bash
# Which kernels a build in this base image can get headers of, for Fedora, for Red Hat Enterprise Linux 8 and newer and
# what is built from its sources, and for Amazon Linux. Its one argument is the family: fedora, rhel or amazon. What is
# printed, and the exit code: the top of apt.sh. All in bash: the base image may have nothing else.
set -euo pipefail
family=$1
program=dnf
refresh=(makecache --refresh)
export LC_ALL=C.UTF-8
if [ "$family" = amazon ]; then
    program=yum
    refresh=(makecache)
    export LC_ALL=C
fi

# The name of the package says the variant, where uname -r has it at its end: kernel-64k-devel is of ...aarch64+64k. What
# is listed is read word by word, because a long name makes the program break its line.
offered() {
    local words word package="" variant release
    words=$("$program" list --showduplicates "$@" "kernel*-devel") || return 1
    for word in $words; do
        if [ -n "$package" ]; then
            variant=${package%devel.*}
            variant=${variant#kernel*-}
            variant=${variant%-}
            release=${word#*:}.${package##*.}
            case "$variant $release" in
                uek\ * | rt\ *.rt[0-9]*) variant="" ;;
                uek64k\ *) variant=64k ;;
            esac
            echo "driverwright-kernel: $release${variant:++$variant}"
        fi
        case "$word" in kernel*-devel.*) package=$word ;; *) package="" ;; esac
    done
}

"$program" "${refresh[@]}" --setopt="*.skip_if_unavailable=False" || {
    echo "driverwright: a repository of the base image cannot be reached"
    exit 67
}
offered || echo "there are no headers in its repositories"
case "$family" in
    rhel)
        offered --enablerepo="*rt" || echo "there is no repository of real-time kernels"
        ;;
    amazon)
        offered --releasever=latest || echo "there is no later release"
        for extra in $(amazon-linux-extras list 2>/dev/null | grep -o "kernel-[0-9.]*" || echo); do
            amazon-linux-extras enable "$extra" && offered || echo "there is no $extra"
            amazon-linux-extras disable "$extra" || echo "$extra stays"
        done
        ;;
esac
"$program" clean all
