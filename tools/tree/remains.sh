# shellcheck shell=bash
# What a run has left on this machine: mounts, loop devices, control groups, processes and their namespaces.
# Sourced by tools/machine.
# shellcheck disable=SC2154

# Prints what there is now that a run could have made, one a line: its kind and its name.
remains() {
    awk '{ print "mount", $5 }' /proc/self/mountinfo
    local file
    for file in /sys/block/loop*/loop/backing_file; do
        [[ ! -r $file ]] || printf 'loop device %s of %s\n' "$(basename "${file%/loop/backing_file}")" "$(<"$file")"
    done 2>/dev/null
    # One with processes is that of a testbed that runs: of this run it is seen in its processes, others started the rest.
    while read -r file; do
        [[ -n $(find "$file" -name cgroup.procs -exec cat {} +) ]] || printf 'control group %s\n' "$file"
    done < <(find /sys/fs/cgroup -mindepth 1 -maxdepth 3 -type d -name 'dw-*' 2>/dev/null)
}

# Prints the processes of this run that still live, and their namespaces: what lies in its tree is seen in their mounts.
living() {
    local process pid
    for process in /proc/[0-9]*; do
        pid=${process#/proc/}
        grep --quiet --no-messages --fixed-strings "/$token/" "$process/mountinfo" ||
            tr '\0' '\n' 2>/dev/null <"$process/environ" | grep --quiet --line-regexp "DRIVERWRIGHT_RUN=$token" || continue
        [[ $pid == "$$" || $pid == "$BASHPID" ]] && continue
        printf 'process %s %s\n' "$pid" "$(tr '\0' ' ' <"$process/cmdline" | cut -c 1-80)"
        printf 'namespace %s\n' "$(readlink "$process/ns/mnt")" "$(readlink "$process/ns/pid")"
    done 2>/dev/null | sort -u
}

report_remains() {
    local left
    left=$(
        # Of two runs at once, what is new may be the other one's: then only what is certainly this one's is named.
        if flock --nonblock --exclusive "$others"; then
            comm -13 <(sort -u <<<"$1") <(remains | sort -u)
        fi
        living | grep -vxFf <(for kind in mnt pid; do printf 'namespace %s\n' "$(readlink /proc/self/ns/$kind)"; done)
    ) || :
    [[ -n $left ]] || return 0
    say "this run has left on the machine:"
    head -n 20 <<<"$left" | sed 's/^/  /' >&2
    (($(wc -l <<<"$left") <= 20)) || say "and $(($(wc -l <<<"$left") - 20)) more"
}
