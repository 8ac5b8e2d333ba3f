#!/bin/busybox sh
# What runs in a driver pod, and the only program there: it loads the image's kernel modules, proves that they work,
# and unloads them again.
#
#   loader load    init container: load and prove, or say why not; the verdict is one JSON line in the termination log
#   loader hold    main container: wait for SIGTERM, then unload what is ours
#   loader probe   readiness probe: 0 only while every module is live, is the one of this image, and has its device
#   loader leave   the main container's preStop hook: take away the blacklist, for the pod goes and not only the machine
#
# The image's data files, below /driver (data, never evaluated; names with - or _ are the same to the kernel and here):
#
#   kernel         the kernel release this image was built for
#   modules        <name> <parameter>...             in load order
#   identities     <name> srcversion|buildID <hex>   what /sys/module must show once the module is live
#   depends        <name> <name>...                  what modinfo says it needs, in the image or the kernel's own
#   needs-device   <name>                            drives a bus that announces its devices: one must be bound
#
# Beside them /firmware, where the driver has any: its files lie below the node's /lib/firmware/updates/<kernel> while
# the driver is there. What the pod's manifest adds (words between blanks):
#
#   DRIVER         what names this pod's files on the node: no other driver's, and no other target's
#   REMOVE_MODULES modules of the kernel's own that are unloaded, in this order, before ours are loaded
#   BLACKLIST      modules that nobody may load on the node: modprobe and udev are told by a file in /etc/modprobe.d
#
# ash has `local` as dash has.
# shellcheck shell=dash

set -u
# Values are split into words, but never into file names.
set -f

image=${DRIVER_ROOT:-}
sys=${SYSFS:-/sys}
proc=${PROC:-/proc}
host_modules=${HOST_MODULES:-/host/lib/modules}
host_firmware=${HOST_FIRMWARE:-/host/lib/firmware}
blacklist=${BLACKLIST:-}
blacklist_file=${HOST_MODPROBE:-/host/etc/modprobe.d}/driverwright-${DRIVER:-}.conf
to_remove=${REMOVE_MODULES:-}
# What this run has unloaded of them, the last one first.
removed=
termination_log=${TERMINATION_LOG:-/dev/termination-log}
device_timeout=${DEVICE_TIMEOUT:-10}
# busybox's shell takes its own applets before PATH.
insmod=${INSMOD:-insmod}
rmmod=${RMMOD:-rmmod}
dmesg=${DMESG:-dmesg}
# A termination message may have 4096 bytes; this is for the modules in it.
message_limit=3900

say() {
    printf 'driverwright: %s\n' "$*"
}

# --- What the image holds and the node runs. Only the shell's own words: the readiness probe comes by every few seconds.

# read_word FILE: sets word to the first line of a file that must be there.
read_word() {
    word=
    read -r word 2>/dev/null <"$1"
    if [ -z "$word" ]; then
        say "$1 cannot be read: is this a driver image on a Linux node?"
        exit 2
    fi
}

read_driver() {
    local name
    read_word "$image/driver/kernel" && built_for=$word
    read_word "$proc/sys/kernel/osrelease" && kernel=$word
    read_word "$proc/sys/kernel/random/boot_id" && boot_id=$word
    read_word "$image/driver/modules"
    modules=
    reversed=
    while read -r name _ || [ -n "$name" ]; do
        [ -n "$name" ] || continue
        modules="$modules $name"
        reversed="$name $reversed"
    done <"$image/driver/modules"
    firmware=$host_firmware/updates/$built_for
    firmware_list=$firmware/.driverwright-${DRIVER:-}
}

# look_up FILE NAME: sets found to what follows NAME on its line of a data file.
look_up() {
    local key=
    found=
    [ -r "$image/driver/$1" ] || return 1
    while read -r key found || [ -n "$key" ]; do
        [ "$key" != "$2" ] || return 0
    done <"$image/driver/$1"
    found=
    return 1
}

# find_module NAME: sets directory to the module's place in sysfs, where names have underscores only.
find_module() {
    local left=$1 name=
    while [ "$left" != "${left#*-}" ]; do
        name=$name${left%%-*}_
        left=${left#*-}
    done
    directory=$sys/module/$name$left
}

is_live() {
    local state
    find_module "$1"
    read -r state 2>/dev/null <"$directory/initstate" && [ "$state" = live ]
}

# is_among NAME OTHER...: one of the others is the same module.
is_among() {
    local wanted other
    find_module "$1"
    wanted=$directory
    shift
    for other; do
        find_module "$other"
        [ "$directory" != "$wanted" ] || return 0
    done
    return 1
}

# identify NAME: sets kind, expected and actual, the identity that the image and the kernel give for a live module.
identify() {
    actual=
    look_up identities "$1" || return 1
    kind=${found%% *}
    expected=${found#* }
    find_module "$1"
    case $kind in
    srcversion) read -r actual 2>/dev/null <"$directory/srcversion" ;;
    # An ELF note: three words of header and "GNU" before the digest.
    buildID) actual=$(od -An -v -tx1 -j16 "$directory/notes/.note.gnu.build-id" 2>/dev/null | tr -d ' \n') ;;
    esac
}

# is_ours NAME: a module of this name is live, and it is the one of this image.
is_ours() {
    is_live "$1" && identify "$1" && [ -n "$expected" ] && [ "$actual" = "$expected" ]
}

# find_devices NAME: sets devices to the names of the devices bound to the module's drivers, and fails without any.
find_devices() {
    local link
    devices=
    find_module "$1"
    set +f
    for link in "$directory"/drivers/*/*; do
        # Of all that lies in a driver's folder only a device has a driver.
        [ -L "$link/driver" ] && devices="$devices ${link##*/}"
    done
    set -f
    [ -n "$devices" ]
}

# --- The verdict.

# quoted TEXT: prints a JSON string of the printable ASCII in TEXT.
quoted() {
    printf '"%s"' "$(printf '%s' "$1" | tr '\t\n' '  ' | tr -cd '\040-\176' | cut -c 1-1000 | sed 's/[\\"]/\\&/g')"
}

# write_verdict RESULT [MEMBERS]: leaves the verdict where the kubelet picks it up.
write_verdict() {
    local line
    line=$(printf '{"result":%s,"kernel":%s,"bootID":%s%s}' \
        "$(quoted "$1")" "$(quoted "$kernel")" "$(quoted "$boot_id")" "${2:-}")
    if ! printf '%s\n' "$line" 2>/dev/null >"$termination_log"; then
        say "$termination_log cannot be written, the verdict is: $line"
    fi
}

# refuse RESULT MODULE MESSAGE: says why the driver does not work here, takes back what was done for it, and ends.
refuse() {
    undo
    write_verdict "$1" ",\"module\":$(quoted "$2"),\"message\":$(quoted "$3")"
    say "$1: $3"
    exit 1
}

# describe_modules LIMIT: prints the modules as JSON, each with at most LIMIT of its devices.
describe_modules() {
    local name device comma='' inner left
    for name in $modules; do
        identify "$name"
        find_devices "$name"
        printf '%s{"name":%s,"%s":%s,"devices":[' "$comma" "$(quoted "$name")" "$kind" "$(quoted "$actual")"
        comma=,
        inner=
        left=$1
        for device in $devices; do
            [ "$left" -gt 0 ] || break
            left=$((left - 1))
            printf '%s%s' "$inner" "$(quoted "$device")"
            inner=,
        done
        printf ']}'
    done
}

write_loaded() {
    local limit members
    for limit in 16 4 1 0; do
        members=",\"modules\":[$(describe_modules "$limit")]"
        [ "${#members}" -gt "$message_limit" ] || break
    done
    write_verdict Loaded "$members"
    say "Loaded:$modules on $kernel"
}

# --- What the driver needs on the node besides its modules: firmware, and others kept away.

# firmware_files: prints the image's firmware, a path on each line.
firmware_files() {
    [ ! -d "$image/firmware" ] || (cd "$image/firmware" && find . -type f | sed 's,^\./,,' | sort)
}

# is_listed FILE: it is firmware that we put on the node.
is_listed() {
    grep -Fqx -e "$1" "$firmware_list" 2>/dev/null
}

# check_firmware FILES: refuses when the node has another file in the place of one.
check_firmware() {
    local file
    [ -d "$host_firmware" ] ||
        refuse LoadFailed "${modules##* }" "the image has firmware, but the pod has no $host_firmware: set spec.module.firmwarePath"
    while IFS= read -r file; do
        [ ! -e "$firmware/$file" ] || is_listed "$file" || cmp -s "$image/firmware/$file" "$firmware/$file" ||
            refuse LoadFailed "${modules##* }" "firmware $file: the node has another one in $firmware: remove it there"
    done <<END
$1
END
}

# copy_firmware: puts the image's firmware where this kernel looks first, and no other. A file is there whole or not at
# all; the list says which are ours, also after a crash.
copy_firmware() {
    local files file mine=''
    files=$(firmware_files)
    [ -n "$files" ] || return 0
    check_firmware "$files"
    while IFS= read -r file; do
        [ -e "$firmware/$file" ] && ! is_listed "$file" || mine="$mine$file
"
    done <<END
$files
END
    mkdir -p "$firmware" && printf '%s' "$mine" >>"$firmware_list" ||
        refuse LoadFailed "${modules##* }" "firmware cannot be written to $firmware: is the node's /lib/firmware read-only?"
    while IFS= read -r file; do
        [ -n "$file" ] || continue
        mkdir -p "$(dirname "$firmware/$file")" && cp "$image/firmware/$file" "$firmware/$file.driverwright" &&
            mv -f "$firmware/$file.driverwright" "$firmware/$file" ||
            refuse LoadFailed "${modules##* }" "firmware $file cannot be written to $firmware: is its disk full?"
    done <<END
$mine
END
    # An earlier image may have had more.
    while IFS= read -r file; do
        [ -f "$image/firmware/$file" ] || rm -f "$firmware/$file"
    done <"$firmware_list"
    printf '%s' "$mine" >"$firmware_list"
}

remove_firmware() {
    local file
    [ -f "$firmware_list" ] || return 0
    while IFS= read -r file; do
        rm -f "$firmware/$file" "$firmware/$file.driverwright"
    done <"$firmware_list"
    rm -f "$firmware_list"
    find "$firmware" -depth -type d -exec rmdir {} \; 2>/dev/null
    say "removed the firmware from $firmware"
}

# write_blacklist: also what names a module, and not only what finds it by a device, is told to leave it. The file stays
# when the load is refused: after a boot with it the driver may have its place.
write_blacklist() {
    local name
    [ -n "$blacklist" ] || return 0
    {
        echo "# Written by driverwright for $DRIVER, and removed with its driver pod."
        for name in $blacklist; do
            echo "blacklist $name"
            echo "install $name /bin/false"
        done
    } 2>/dev/null >"$blacklist_file" ||
        refuse LoadFailed "${blacklist%% *}" "$blacklist_file cannot be written: is the node's /etc/modprobe.d read-only?"
}

check_blacklist() {
    local name
    for name in $blacklist; do
        # shellcheck disable=SC2086  # names are words
        is_live "$name" && ! is_among "$name" $modules $to_remove || continue
        refuse LoadFailed "$name" "module $name is on spec.module.blacklist, and live ($(usage_of "$name")): name it in spec.module.inTreeModulesToRemove as well, or boot the node again"
    done
}

# is_leaving NAME: a module that is to make room is there, and is no build of ours that stays.
is_leaving() {
    is_live "$1" && ! is_ours "$1"
}

# check_removable: refuses, before anything is unloaded, when a module that is to make room cannot. It is used by modules
# that stand on it, which may go before it, and by whatever else has taken hold of it, which does not go.
check_removable() {
    local name users holder going=''
    for name in $to_remove; do
        is_leaving "$name" || continue
        find_module "$name"
        users=0
        read -r users 2>/dev/null <"$directory/refcnt"
        set +f
        for holder in "$directory"/holders/*; do
            # shellcheck disable=SC2086  # names are words
            ! is_among "${holder##*/}" $going || users=$((users - 1))
        done
        set -f
        [ "$users" -le 0 ] ||
            refuse LoadFailed "$name" "module $name is in use ($(usage_of "$name")) and cannot make room, as spec.module.inTreeModulesToRemove asks: end what uses it, name the modules that do before it, or boot the node with it on spec.module.blacklist"
        going="$going $name"
    done
}

remove_in_tree() {
    local name
    for name in $to_remove; do
        is_leaving "$name" || continue
        unload "$name" || refuse LoadFailed "$name" "$reason"
        removed="$name $removed"
        say "unloaded $name, as spec.module.inTreeModulesToRemove asks"
    done
}

# undo: leaves the node as it was, unless a module of ours is live. The driver may have failed the network's own device.
undo() {
    local name again=$removed
    removed=
    for name in $modules; do
        ! is_ours "$name" || return 0
    done
    remove_firmware
    for name in $again; do
        # In a shell of its own: why this fails is not why the driver does.
        if (insert_with_dependencies "$host_modules/$kernel" "$name") >/dev/null 2>&1; then
            say "loaded $name again"
        else
            say "$name could not be loaded again"
        fi
    done
}

# --- Loading.

# usage_of NAME: prints who uses a live module.
usage_of() {
    local count='?' holder holders=
    find_module "$1"
    read -r count 2>/dev/null <"$directory/refcnt"
    set +f
    for holder in "$directory"/holders/*; do
        [ -e "$holder" ] && holders="$holders ${holder##*/}"
    done
    set -f
    printf 'refcnt %s%s' "$count" "${holders:+, used by$holders}"
}

# unload NAME: sets reason when the module stays.
unload() {
    local output
    find_module "$1"
    output=$("$rmmod" "${directory##*/}" 2>&1) && ! is_live "$1" && return
    reason="module $1 is in use ($(usage_of "$1")): ${output:-it is still live}"
    return 1
}

# A live module that is not ours makes room, and before it whatever of ours was loaded on top of it.
make_room() {
    local name doomed=''
    for name in $modules; do
        if [ -n "$doomed" ] || { is_live "$name" && ! is_ours "$name"; }; then
            doomed="$name $doomed"
        fi
    done
    for name in $doomed; do
        is_live "$name" || continue
        unload "$name" || refuse LoadFailed "$name" "another build of $name is live and cannot be replaced: $reason"
        say "unloaded another build of $name"
    done
}

# modules_dep FOLDER NAME: prints a module's file and the files it depends on, as the folder's modules.dep has them.
modules_dep() {
    awk -v name="$2" '
        BEGIN { gsub(/-/, "_", name) }
        {
            base = $1
            sub(/:$/, "", base); sub(/^.*\//, "", base); sub(/\.ko.*$/, "", base); gsub(/-/, "_", base)
            if (base == name) { sub(/:/, ""); print; exit }
        }' "$1/modules.dep" 2>/dev/null
}

# kernel_sentence NAME: prints what the kernel last said about a module since $before, apart from that it is tainted.
kernel_sentence() {
    "$dmesg" 2>/dev/null | BEFORE=$before awk -v name="$1" '
        BEGIN { gsub(/-/, "_", name) }
        $0 == ENVIRON["BEFORE"] { said = ""; next }
        /taint/ { next }
        index($0, name) || /module/ { said = $0 }
        END { sub(/^(<[0-9]+>)?\[[^]]*\] */, "", said); print said }'
}

# insert MODULE FILE [PARAMETER]...: never with force, which would put a module into a kernel that it does not fit.
insert() {
    local name=$1 output sentence before
    shift
    before=$("$dmesg" 2>/dev/null | tail -n 1)
    output=$("$insmod" "$@" 2>&1) && return
    sentence=$(kernel_sentence "$name")
    refuse LoadFailed "$name" "${sentence:-$output}"
}

# base_name FILE: sets word to the module's name of a file below /lib/modules.
base_name() {
    word=${1##*/}
    word=${word%%.ko*}
}

# insert_with_dependencies FOLDER NAME [PARAMETER]...: fails when the folder has no such module.
insert_with_dependencies() {
    local folder=$1 name=$2 files file others=''
    shift 2
    files=$(modules_dep "$folder" "$name")
    [ -n "$files" ] || return 1
    # modules.dep names the nearest dependency first, the kernel wants the farthest first.
    for file in ${files#* }; do
        [ "$file" = "${files%% *}" ] || others="$file $others"
    done
    for file in $others; do
        base_name "$file"
        is_live "$word" || insert "$word" "$folder/$file"
    done
    insert "$name" "$folder/${files%% *}" "$@"
}

load_dependency() {
    is_live "$2" && return
    insert_with_dependencies "$image/lib/modules/$kernel" "$2" && return
    insert_with_dependencies "$host_modules/$kernel" "$2" && return
    refuse LoadFailed "$1" "module $1 needs module $2, which is not loaded, not in the image and not in $host_modules/$kernel"
}

load_module() {
    local dependency parameters
    if is_ours "$1"; then
        say "$1 is live already, its parameters stay as they are"
        return
    fi
    look_up depends "$1"
    for dependency in $found; do
        load_dependency "$1" "$dependency"
    done
    look_up modules "$1"
    parameters=$found
    # shellcheck disable=SC2086  # each parameter is a word of its own
    insert_with_dependencies "$image/lib/modules/$kernel" "$1" $parameters ||
        refuse LoadFailed "$1" "the image has no module $1 in /lib/modules/$kernel/modules.dep"
    is_live "$1" || refuse LoadFailed "$1" "module $1 was inserted but is not live"
    identify "$1" || refuse LoadFailed "$1" "the image does not say what identity module $1 has"
    is_ours "$1" || refuse LoadFailed "$1" "module $1 is live with $kind ${actual:-none}, the image's has $expected"
}

# A driver may bind its device a moment after it was loaded.
wait_for_device() {
    local waited=0
    look_up needs-device "$1" || return 0
    until find_devices "$1"; do
        [ "$waited" -lt "$device_timeout" ] ||
            refuse NoDevice "$1" "module $1 is live, but no device is bound to it (waited $device_timeout s)"
        sleep 1
        waited=$((waited + 1))
    done
}

# --- The commands.

# The node's labels lag behind its kernel after a reboot: the pod stays quietly until it is moved.
wrong_kernel="the pod waits until the node's labels have caught up"

load() {
    local name
    if [ "$kernel" != "$built_for" ]; then
        write_verdict WrongKernel ",\"builtFor\":$(quoted "$built_for")"
        say "WrongKernel: the node runs $kernel, this image is for $built_for: $wrong_kernel"
        return
    fi
    write_blacklist
    check_blacklist
    check_removable
    copy_firmware
    remove_in_tree
    make_room
    for name in $modules; do
        load_module "$name"
    done
    for name in $modules; do
        wait_for_device "$name"
    done
    write_loaded
}

release() {
    local name stays=''
    kill "${!:-}" 2>/dev/null
    if [ "$kernel" = "$built_for" ]; then
        for name in $reversed; do
            is_ours "$name" || continue
            if unload "$name"; then
                say "unloaded $name"
            else
                say "$reason: it stays loaded"
                stays=yes
            fi
        done
    fi
    # A module may ask for its firmware at any time.
    [ -n "$stays" ] || remove_firmware
    exit 0
}

leave() {
    [ -z "$blacklist" ] || rm -f "$blacklist_file"
}

hold() {
    # Everything happens in the trap: a flag could be set between the test of it and the wait.
    trap release TERM INT
    if [ "$kernel" = "$built_for" ]; then
        say "holding$modules on $kernel until SIGTERM"
    else
        say "the node runs $kernel, this image is for $built_for: $wrong_kernel"
    fi
    while :; do
        sleep 60 >/dev/null 2>&1 &
        wait
    done
}

unready() {
    say "$*"
    exit 1
}

probe() {
    local name
    [ "$kernel" = "$built_for" ] || unready "the node runs $kernel, this image is for $built_for"
    for name in $modules; do
        is_live "$name" || unready "module $name is not loaded"
        is_ours "$name" || unready "module $name is another build than this image's"
        ! look_up needs-device "$name" || find_devices "$name" || unready "no device is bound to module $name"
    done
}

case ${1:-} in
load | hold | probe | leave)
    read_driver
    "$1"
    ;;
*)
    say "say what to do: $0 load|hold|probe|leave"
    exit 2
    ;;
esac
