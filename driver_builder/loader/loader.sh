#!/bin/busybox sh
# The only program in a driver pod: it loads the image's kernel modules, proves that they work, and reports when they stop
# working. It comes from an image of its own: an init container copies it and busybox into a folder of the pod, and it runs
# in the driver's image, of which it needs only the data. There this file ends with a program that decompresses zstd, which
# busybox cannot: gzipped, and after it its size in eleven characters (dockerfiles/loader).
#
#   loader load    init container: makes room, loads and proves, or reports why not. Privileged
#   loader hold    main container: checks the modules every few seconds, and ends with a verdict when one is gone
#   loader probe   readiness probe: 0 only while every module is live, is the one of this image, and has its device
#   loader unload  a pod of its own, when a driver leaves its node for good: removes modules and files. Privileged
#
# Where the image's own program loads the modules (LOADER=image):
#
#   loader prepare init container: makes room for that program, or reports why not. Privileged
#   loader prove   a pod of its own: waits until the modules are live and stay so, reports them, and ends
#
# Every verdict is one JSON line in the termination log. SIGTERM leaves everything where it is: a pod cannot tell a restart
# from a removal.
#
# The image's data files, below /driver (data, never evaluated; names with - or _ are the same to the kernel and here):
#
#   kernel         the kernel release this image was built for
#   modules        <name> <parameter>...             in load order
#   identities     <name> srcversion|buildID <hex>   what /sys/module must show once the module is live
#   depends        <name> <name>...                  what modinfo says it needs, in the image or the kernel's own
#   needs-device   <name>                            drives a bus that announces its devices: one must be bound
#
# Modules of the image that a named one needs come with it, whether named or not: they are loaded before it, replaced and
# unloaded with it, and checked like it. Their identities are those of their files. <DRIVER>.needed beside the other records
# has those that were loaded, in the form of <DRIVER>.live.
#
# An image without them is a vendor's: `load` makes them of its modules, in the pod's own folder. What `prove` has found live
# lies on the node, for `hold`: <DRIVER>.live beside the other records. The names of the modules come from the manifest:
#
#   MODULES        lines as those of the file modules
#   KERNEL         the kernel release that the pod is for
#   DIR_NAME       the image's folder with lib/modules/<kernel>
#   FIRMWARE_PATH  the image's folder with firmware; and after a colon, in every image, where it goes on the node
#   LIVE_TIMEOUT   how many seconds the image's own program may take
#   POD_UID        the driver pod that `prove` proves, and of `hold` its own
#
# Beside the data files /firmware, where the driver has any: its files lie below the node's /lib/firmware/updates/<kernel> while
# the driver is there, or in /var/lib/firmware, for nodes whose /lib/firmware is read-only: then the kernel searches that as
# well (firmware_class.path, one for all drivers of a node). What the manifest adds for every image (words between blanks):
#
#   DRIVER         what names this pod's files on the node: <namespace>.<driver>-<target>
#   REMOVE_MODULES modules of the kernel's own that are unloaded before ours are loaded; those with a + are loaded instead
#   BLACKLIST      modules that nobody may load on the node: a file in /etc/modprobe.d keeps modprobe and udev from it
#   DEPENDS        <namespace>.<driver>:<module>,<module>..., drivers whose modules are loaded before ours
#   REBUILD        the token of a requested rebuild: what was loaded before it is reloaded
#   NODE_REBUILDS  <node>:<token>..., the same for single nodes; NODE_NAME is this one
#   DEVICE_NODES   /dev/<name>..., which must be there once the modules are loaded; the node's /dev is /host/dev
#   USERSPACE      <path> <digest>: the image's /userspace is exported there on the node, below /run; a digest names a copy
#
# And for unload:
#
#   UNLOAD         <module>:<identity>..., the last loaded first; a module with another identity stays
#   BOOT_ID        the boot they were loaded in; in another one they are gone, and files alone are removed
#
# ash has `local` as dash has.
# shellcheck shell=dash

set -u
# Values are split into words, but never into file names.
set -f

image=${DRIVER_ROOT:-}
pod_folder=${POD_FOLDER:-/driverwright}
loaded_by=${LOADER:-ours}
is_vendors=
sys=${SYSFS:-/sys}
proc=${PROC:-/proc}
host_modules=${HOST_MODULES:-/host/lib/modules}
host_firmware=${HOST_FIRMWARE:-/host/lib/firmware}
host_dev=${HOST_DEV:-/host/dev}
run_folder=${HOST_RUN:-/host/run/driverwright}
rebuild_file=$run_folder/${DRIVER:-}
parameters_file=$rebuild_file.parameters
# "<boot id> <uid of the driver pod>", then the lines of a file identities.
live_file=$rebuild_file.live
needed_file=$rebuild_file.needed
# A node's modules are a driver's, whichever of its targets has them.
this_driver=${DRIVER:-}
this_driver=${this_driver%-*}
owners=$run_folder/owners
# Modules that this run decompresses, and what with; it goes when the run ends.
plain_folder=$run_folder/.plain-${DRIVER:-}
# A loader that has claimed its modules and is not done after so long was killed.
claim_seconds=120
lock_seconds=${LOCK_SECONDS:-10}
locked=
uptime=0
waited_for_claims=0
leaving='' doomed=''
# Modules of inTreeModulesToRemove that stay loaded; and the sentence about all modules that do.
spared='' spared_because=''
# Modules of this driver that this run unloads to reload them.
away=
# What is being loaded, or was; and whether that may fail.
loading='' is_soft=''
# What the spec names; what that needs of the image besides; "|<name> <words>|..." of the latter's files; and those of it that
# this run has loaded, the last one first. What this run has loaded because a module asks for it, and stands on ours; what is
# recorded of both.
named='' needed='' needed_identities='|' needed_depends='|'
came='' asked='' along='' riders=''
blacklist=${BLACKLIST:-}
blacklist_file=${HOST_MODPROBE:-/host/etc/modprobe.d}/driverwright-${DRIVER:-}.conf
to_remove='' to_load=''
for word in ${REMOVE_MODULES:-}; do
    case $word in +*) to_load="$to_load ${word#+}" ;; *) to_remove="$to_remove $word" ;; esac
done
# What this run has unloaded of them and of replaced, the last one first: modules of the kernel's own that ours need room of.
removed='' replaced=''
device_nodes=${DEVICE_NODES:-}
host_root=${HOST_ROOT:-/host}
var_firmware=$host_root/var/lib/firmware
firmware_path=${FIRMWARE_PATH:-}
firmware_place=
case $firmware_path in *:*) firmware_place=${firmware_path#*:} firmware_path=${firmware_path%%:*} ;; esac
# It has the boot in which our loader has set the path.
search_path=$sys/module/firmware_class/parameters/path
search_path_file=$run_folder/.firmware-path
userspace=${USERSPACE:-}
# The link on the node, the name of the copy that it is to show, and the copy; copied is one that this run has made.
export_link='' copy_name='' copy='' copied=''
# KiB that stay free where user space is copied to: the node's own services need them.
kept_free=${KEPT_FREE:-32768}
termination_log=${TERMINATION_LOG:-/dev/termination-log}
# The container's own /dev has the program for zstd where the node's /run is mounted noexec, as Debian and Ubuntu do it.
dev_folder=${termination_log%/*}/.driverwright
device_timeout=${DEVICE_TIMEOUT:-10}
depends_timeout=${DEPENDS_TIMEOUT:-30}
live_timeout=${LIVE_TIMEOUT:-1200}
# So long the modules stay as they are before they count as loaded by this pod: a program that finds its modules live from
# before begins by unloading them.
settle_seconds=${SETTLE_SECONDS:-20}
# The kubelet kills a program that has not ended after its grace period, which is shorter.
ending_seconds=${ENDING_SECONDS:-120}
hold_seconds=${HOLD_SECONDS:-5}
# busybox's shell takes its own applets before PATH.
insmod=${INSMOD:-insmod}
rmmod=${RMMOD:-rmmod}
dmesg=${DMESG:-dmesg}
unzstd=
# A termination message may have 4096 bytes; this is for the modules in it.
message_limit=3900

say() {
    printf 'driverwright: %s\n' "$*"
}

# --- What the image contains and the node runs. Shell builtins only: this runs every few seconds.

# read_word FILE: sets word to the first line of a file that must be there.
read_word() {
    word=
    read -r word 2>/dev/null <"$1"
    if [ -z "$word" ]; then
        say "$1 cannot be read: is this a driver image on a Linux node?"
        exit 2
    fi
}

read_node() {
    read_word "$proc/sys/kernel/osrelease" && kernel=$word
    read_word "$proc/sys/kernel/random/boot_id" && boot_id=$word
}

# find_data: sets where the data files are, the image's folder with a folder for each kernel, and that with firmware.
find_data() {
    data=$image/driver image_modules=$image/lib/modules image_firmware=$image/firmware
    if [ "$loaded_by" = ours ] && [ -e "$data/kernel" ]; then
        return
    elif [ -n "${MODULES:-}" ] || [ -e "$pod_folder/driver/kernel" ]; then
        is_vendors=yes
        data=$pod_folder/driver
        image_modules=$image${DIR_NAME:-/opt}/lib/modules
        image_firmware=${firmware_path:+$image$firmware_path}
    fi
}

# write_names: writes the data files that only the manifest knows, and removes what an earlier run wrote.
write_names() {
    rm -rf "$data"
    mkdir -p "$data" && printf '%s\n' "$MODULES" >"$data/modules" && printf '%s\n' "${KERNEL:-}" >"$data/kernel" || {
        say "$data cannot be written"
        exit 2
    }
}

read_driver() {
    local name
    read_node
    read_word "$data/kernel" && built_for=$word
    read_word "$data/modules"
    modules=
    while read -r name _ || [ -n "$name" ]; do
        [ -n "$name" ] || continue
        modules="$modules $name"
    done <"$data/modules"
    firmware=$host_firmware/updates/$built_for
    [ -z "$firmware_place" ] || firmware=$host_root$firmware_place
    firmware_list=$firmware/.driverwright-${DRIVER:-}
}

# look_up FILE NAME: sets found to what follows NAME on its line of a data file.
look_up() {
    local key='' file=$data/$1
    found=
    [ "$loaded_by $1" != 'image identities' ] || file=$live_file
    [ -r "$file" ] || return 1
    while read -r key found || [ -n "$key" ]; do
        [ "$key" != "$2" ] || return 0
    done <"$file"
    found=
    return 1
}

# underscore NAME: sets word to the name as sysfs has it.
underscore() {
    local left=$1 name=
    while [ "$left" != "${left#*-}" ]; do
        name=$name${left%%-*}_
        left=${left#*-}
    done
    word=$name$left
}

# find_module NAME: sets directory to the module's place in sysfs.
find_module() {
    underscore "$1"
    directory=$sys/module/$word
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

# read_identity KIND: sets actual to the identity of this kind of the module in directory.
read_identity() {
    actual=
    case $1 in
    srcversion) read -r actual 2>/dev/null <"$directory/srcversion" ;;
    # An ELF note: three words of header and "GNU" before the digest.
    buildID) actual=$(od -An -v -tx1 -j16 "$directory/notes/.note.gnu.build-id" 2>/dev/null | tr -d ' \n') ;;
    esac
}

# look_up_in LIST NAME: sets found to what follows NAME in needed_identities or needed_depends.
look_up_in() {
    found=
    case $1 in *"|$2 "*) ;; *) return 1 ;; esac
    found=${1#*"|$2 "}
    found=${found%%"|"*}
}

# identify NAME: sets kind, expected and actual, the identity that the image and the kernel give for a live module.
identify() {
    actual=
    look_up identities "$1" || look_up_in "$needed_identities" "$1" || return 1
    kind=${found%% *}
    expected=${found#* }
    find_module "$1"
    read_identity "$kind"
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

# find_device_node PATH: a character or block device of this name is on the node, or a relative link to one.
find_device_node() {
    [ -c "$host_dev/${1#/dev/}" ] || [ -b "$host_dev/${1#/dev/}" ]
}

# check_driver: fails when a module is not live, is another build, or has no device, or a device node is missing; sets
# lost, module and why.
check_driver() {
    local node
    for module in $modules; do
        is_live "$module" || {
            lost=NotLive why="module $module is not loaded"
            return 1
        }
        is_ours "$module" || {
            lost=OtherBuild why="module $module is a different build from this image's"
            return 1
        }
        ! look_up needs-device "$module" || find_devices "$module" || {
            lost=NoDevice why="no device is bound to module $module"
            return 1
        }
    done
    for node in $device_nodes; do
        find_device_node "$node" || {
            lost=DeviceNodeMissing why="device node $node is missing"
            return 1
        }
    done
}

# --- The verdict.

# quoted TEXT: prints a JSON string of the printable ASCII in TEXT.
quoted() {
    printf '"%s"' "$(printf '%s' "$1" | tr '\t\n' '  ' | tr -cd '\040-\176' | cut -c 1-1000 | sed 's/[\\"]/\\&/g')"
}

# write_verdict RESULT [MEMBERS]: writes the verdict where the kubelet reads it.
write_verdict() {
    local line
    line=$(printf '{"result":%s,"kernel":%s,"bootID":%s%s}' \
        "$(quoted "$1")" "$(quoted "$kernel")" "$(quoted "$boot_id")" "${2:-}")
    if ! printf '%s\n' "$line" 2>/dev/null >"$termination_log"; then
        say "$termination_log cannot be written, the verdict is: $line"
    fi
}

# refuse RESULT MODULE MESSAGE [MEMBERS]: reports why the driver does not work here, undoes what was done, and exits. What the
# driver does not need ends the subshell alone.
refuse() {
    [ -z "$is_soft" ] || exit 1
    undo
    drop_claims
    write_verdict "$1" ",\"module\":$(quoted "$2"),\"message\":$(quoted "$3")${4:-}"
    say "$1: $3"
    exit 1
}

# describe_modules LIMIT: prints the named modules as JSON, each with at most LIMIT of its devices.
describe_modules() {
    local name device comma='' inner left
    for name in ${named:-$modules}; do
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
        members=",\"modules\":[$(describe_modules "$limit")]${spared_because:+,\"message\":$(quoted "$spared_because")}"
        [ "${#members}" -gt "$message_limit" ] || break
    done
    write_verdict Loaded "$members"
    say "Loaded:$modules on $kernel"
}

# --- What the driver needs on the node besides its modules: firmware, and others kept away.

# firmware_files: prints the image's firmware, a path on each line.
firmware_files() {
    [ ! -d "$image_firmware" ] || (cd "$image_firmware" && find -L . -type f | sed 's,^\./,,' | sort)
}

# own_lists: prints the lists of this driver's firmware where it goes: in a folder for all kernels also those of its other
# targets.
own_lists() {
    local list
    [ -n "$firmware_place" ] || {
        echo "$firmware_list"
        return
    }
    set +f
    for list in "$firmware/.driverwright-$this_driver"-*; do
        [ "${list%-*}" != "$firmware/.driverwright-$this_driver" ] || echo "$list"
    done
    set -f
}

# is_listed FILE: it is firmware that we put on the node.
is_listed() {
    local list
    for list in $(own_lists); do
        ! grep -Fqx -e "$1" "$list" 2>/dev/null || return 0
    done
    return 1
}

# check_firmware FILES: refuses when the node has another file in the place of one, or its kernel looks elsewhere.
check_firmware() {
    local file now=''
    [ -d "${firmware%/updates/*}" ] ||
        refuse LoadFailed "${modules##* }" "the image has firmware, but the pod has no ${firmware%/updates/*}: set spec.module.firmwarePath"
    while IFS= read -r file; do
        [ ! -e "$firmware/$file" ] || is_listed "$file" || cmp -s "$image_firmware/$file" "$firmware/$file" ||
            refuse LoadFailed "${modules##* }" "firmware $file: the node has a different file of this name in $firmware: remove that file"
    done <<END
$1
END
    [ -n "$firmware_place" ] || return 0
    read -r now 2>/dev/null <"$search_path"
    case ${now%/} in '' | "$firmware_place") return 0 ;; esac
    if is_complete; then
        spared_because="${spared_because:+$spared_because; }firmware is not found: another program has set firmware_class.path of the node's kernel to $now"
        return
    fi
    refuse LoadFailed "${modules##* }" "firmware: another program has set firmware_class.path of the node's kernel to $now, so it does not search $firmware_place: let that program set $firmware_place, or remove spec.module.firmwareHostPath where /lib/firmware can be written"
}

# set_search_path: the kernel searches where our firmware is.
set_search_path() {
    local now=''
    [ -n "$firmware_place" ] || return 0
    read -r now 2>/dev/null <"$search_path"
    # Another program may have set it, to the same place or not.
    [ -z "$now" ] || return 0
    # The record first: a path that nobody knows of would stay.
    { printf '%s\n' "$boot_id" >"$search_path_file" && printf '%s' "$firmware_place" >"$search_path"; } 2>/dev/null ||
        refuse LoadFailed "${modules##* }" "firmware: firmware_class.path cannot be set in $search_path: it needs --loader-privileges privileged"
}

# reset_search_path: the path that our loader has set in this boot is empty again, once nothing is in its folder.
reset_search_path() {
    local now='' set_in=''
    [ -e "$search_path_file" ] || return 0
    [ -z "$(find "$var_firmware/" ! -type d 2>/dev/null | head -n 1)" ] || return 0
    read -r set_in <"$search_path_file"
    read -r now 2>/dev/null <"$search_path"
    # An empty text would not be written at all.
    [ "$set_in $now" != "$boot_id ${var_firmware#"$host_root"}" ] || printf '\000' 2>/dev/null >"$search_path" || return 0
    rm -f "$search_path_file"
}

# copy_firmware: copies the image's firmware to where the kernel looks first. A file is there complete or not at all; the list
# names ours, also after a crash.
copy_firmware() {
    local files file list mine=''
    files=$(firmware_files)
    if [ -z "$files" ]; then
        # An earlier image may have had some.
        remove_firmware "$host_firmware/updates/$built_for"
        remove_firmware "$var_firmware"
        return
    fi
    check_firmware "$files"
    while IFS= read -r file; do
        [ -e "$firmware/$file" ] && ! is_listed "$file" || mine="$mine$file
"
    done <<END
$files
END
    mkdir -p "$firmware" && printf '%s' "$mine" >>"$firmware_list" ||
        refuse LoadFailed "${modules##* }" "firmware cannot be written to $firmware: is the node's ${firmware_place:-/lib/firmware} read-only? See spec.module.firmwareHostPath"
    while IFS= read -r file; do
        [ -n "$file" ] || continue
        mkdir -p "$(dirname "$firmware/$file")" && cp "$image_firmware/$file" "$firmware/$file.driverwright" &&
            mv -f "$firmware/$file.driverwright" "$firmware/$file" ||
            refuse LoadFailed "${modules##* }" "firmware $file cannot be written to $firmware: is its disk full?"
    done <<END
$mine
END
    # An earlier image may have had more.
    while IFS= read -r file; do
        [ -f "$image_firmware/$file" ] || rm -f "$firmware/$file"
    done <"$firmware_list"
    printf '%s' "$mine" >"$firmware_list"
    # What another target of the driver had is this one's now.
    for list in $(own_lists); do
        [ "$list" != "$firmware_list" ] || continue
        grep -Fvx -f "$firmware_list" "$list" >"$list.new"
        if [ -s "$list.new" ]; then mv -f "$list.new" "$list"; else rm -f "$list.new" "$list"; fi
    done
    set_search_path
    # Before, the spec may have had another place.
    [ "$firmware" = "$var_firmware" ] || remove_firmware "$var_firmware"
    [ -z "$firmware_place" ] || remove_firmware "$host_firmware/updates/$built_for"
}

# remove_firmware FOLDER: removes the files that its list names as ours.
remove_firmware() {
    local file list=$1/.driverwright-${DRIVER:-}
    [ -f "$list" ] || return 0
    while IFS= read -r file; do
        rm -f "$1/$file" "$1/$file.driverwright"
    done <"$list"
    rm -f "$list"
    find "$1" -depth -type d -exec rmdir {} \; 2>/dev/null
    [ "$1" != "$var_firmware" ] || reset_search_path
    say "removed the firmware from $1"
}

# --- The driver's user space. A copy lies beside the link that shows it, .<namespace>.<driver>@<digest>, and is there complete
# or not at all. What has the link mounted keeps the copy that it showed then.

# read_export: sets export_link, copy_name and copy; fails for a driver without user space.
read_export() {
    [ -n "$userspace" ] && [ -n "$this_driver" ] || return 1
    export_link=$host_root${userspace%% *}
    copy_name=.$this_driver@${userspace##* }
    copy=${export_link%/*}/$copy_name
}

# is_own_link LINK: it shows a copy of this driver's.
is_own_link() {
    case $(readlink "$1" 2>/dev/null) in ".$this_driver@"*) return 0 ;; esac
    return 1
}

# copy_userspace: copies the image's user space to the node, where the driver has any; nothing shows it yet.
copy_userspace() {
    local path=${userspace%% *} module=${modules##* } needed free
    read_export || return 0
    [ -d "$image/userspace" ] && ! [ -L "$image/userspace" ] ||
        refuse LoadFailed "$module" "the image has no folder /userspace: build it with spec.userspace"
    # An empty folder is what a pod that waits for it has made.
    [ -L "$export_link" ] || ! [ -e "$export_link" ] || rmdir "$export_link" 2>/dev/null ||
        refuse LoadFailed "$module" "user space: $path of the node is not of this driver: remove what has made it"
    ! [ -L "$export_link" ] || is_own_link "$export_link" ||
        refuse LoadFailed "$module" "user space: $path of the node is a link of another driver or program: let only one of them have it"
    [ ! -d "$copy" ] || return 0
    rm -rf "$copy.new"
    needed=$(du -sk "$image/userspace" | cut -f 1)
    free=$(df -kP "${copy%/*}" | awk 'NR == 2 { print $4 }')
    [ "$((needed + kept_free))" -le "${free:-0}" ] ||
        refuse LoadFailed "$module" "user space of $needed KiB: ${path%/*} of the node has ${free:-0} KiB free, of which $kept_free stay free: give the node more memory, or the image less"
    cp -dR "$image/userspace" "$copy.new" && chmod -R go-w,u-s,g-s "$copy.new" && mv "$copy.new" "$copy" &&
        copied=$copy && return
    rm -rf "$copy.new"
    refuse LoadFailed "$module" "user space cannot be copied to ${path%/*} of the node: is it full?"
}

# export_userspace: shows the copy. That of before stays for what has it mounted; what is older goes.
export_userspace() {
    local before place
    for place in "$run_folder/$this_driver" "$host_root/run/nvidia/driver"; do
        [ "$place" = "$export_link" ] || remove_export "$place"
    done
    [ -n "$export_link" ] || return 0
    before=$(readlink "$export_link" 2>/dev/null)
    [ "$before" != "$copy_name" ] || return 0
    ln -sfn "$copy_name" "$copy.link" && mv -T "$copy.link" "$export_link" ||
        refuse LoadFailed "${modules##* }" "user space: the link ${userspace%% *} cannot be written on the node"
    copied=
    remove_copies "${export_link%/*}" "$copy_name" "$before"
    say "exported the user space to ${userspace%% *}"
}

# remove_copies FOLDER [NAME]...: removes the copies of this driver but these.
remove_copies() {
    local entry folder=$1 name
    shift
    set +f
    for entry in "$folder/.$this_driver@"*; do
        for name; do
            [ "${entry##*/}" != "$name" ] || continue 2
        done
        rm -rf "$entry"
    done
    set -f
}

# remove_export LINK: removes what this driver has at one of the places of user space.
remove_export() {
    [ -n "$this_driver" ] && [ -d "${1%/*}" ] || return 0
    ! is_own_link "$1" || rm -f "$1"
    remove_copies "${1%/*}"
}

# write_blacklist: "blacklist" stops loading by device, "install" also loading by name. The file stays when the load is
# refused: after a reboot with it the driver can load.
write_blacklist() {
    local name
    if [ -z "$blacklist" ]; then
        # An earlier pod of this driver may have written one.
        [ -z "${DRIVER:-}" ] || rm -f "$blacklist_file" 2>/dev/null
        return 0
    fi
    {
        echo "# Written by driverwright for $DRIVER, and removed with its driver."
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
        if is_complete; then
            leave "module $name of spec.module.blacklist is already loaded"
            continue
        fi
        refuse LoadFailed "$name" "module $name is on spec.module.blacklist and already loaded ($(usage_of "$name")): add it to spec.module.inTreeModulesToRemove, or reboot the node"
    done
}

# undo: leaves the node as it was, unless a build of ours is live. The driver may have failed the network's own device.
undo() {
    local name again=$removed
    removed=
    # Nothing shows it yet, and each image that is refused would leave one.
    [ -z "$copied" ] || rm -rf "$copied"
    for name in ${named:-$modules}; do
        ! is_live "$name" || return 0
    done
    for name in $came; do
        ! is_in_use "$name" && unload "$name" || continue
        underscore "$name"
        rm -f "$owners/$word"
    done
    remove_firmware "$firmware"
    for name in $again; do
        # In a subshell: its failure is not the driver's.
        if (
            is_soft=yes
            insert_with_dependencies "$host_modules/$kernel" "$name"
        ) >/dev/null 2>&1; then
            say "loaded $name again"
        else
            say "$name could not be loaded again"
        fi
    done
}

# --- Whose module it is. A file for each module on the node has one line, "<boot id> <namespace>.<driver> <state>". The state
# is "live" once this driver has loaded the module: the module is its own for as long as it is live in this boot. Before that,
# and while the module is reloaded, it is the node's uptime at which the driver began to load or to remove it. A file that
# says anything else says nothing.

# lock_owners: one loader decides at a time; fails where nothing can be written. The lock is a link that names its holder
# and when it was made.
lock_owners() {
    local waited=0 holder='' before mine
    read_word "$proc/uptime"
    mine=${DRIVER:-}:${word%% *}
    mkdir -p "$owners" 2>/dev/null
    until ln -s "$mine" "$owners/.locked" 2>/dev/null; do
        if [ ! -d "$owners" ]; then
            # It went with the last driver of the node, a moment ago.
            mkdir -p "$owners" 2>/dev/null || return 1
            continue
        fi
        before=$holder
        holder=$(readlink "$owners/.locked")
        [ "$holder" = "$before" ] || waited=0
        if [ "$waited" -ge "$lock_seconds" ]; then
            # It is held for a moment only: its holder was killed in that moment.
            break_lock "$holder" && continue
            [ "$waited" -lt "$((2 * lock_seconds))" ] || return 1
        fi
        sleep 1
        waited=$((waited + 1))
    done
    locked=$mine
}

# break_lock HOLDER: removes a stale lock. One loader at a time: what a second one saw may be another's lock by then.
break_lock() {
    mkdir "$owners/.breaking" 2>/dev/null || return 1
    [ "$(readlink "$owners/.locked")" != "$1" ] || rm -f "$owners/.locked"
    rmdir "$owners/.breaking"
}

unlock_owners() {
    [ -z "$locked" ] || [ "$(readlink "$owners/.locked")" != "$locked" ] || rm -f "$owners/.locked"
    locked=
}

# read_owner NAME: sets owner and state to what a module's file says in this boot.
read_owner() {
    local boot
    owner='' state=''
    underscore "$1"
    [ -f "$owners/$word" ] || return 0
    read -r boot owner state <<END
$(head -c 400 "$owners/$word" 2>/dev/null)
END
    [ "$boot" = "$boot_id" ] || owner='' state=''
}

# write_owner NAME STATE
write_owner() {
    [ -n "$this_driver" ] && [ -d "$owners" ] || return 0
    underscore "$1"
    printf '%s %s %s\n' "$boot_id" "$this_driver" "$2" 2>/dev/null >"$owners/$word" ||
        say "$owners/$word cannot be written: another driver may replace or remove module $1"
}

read_uptime() {
    read_word "$proc/uptime" && uptime=${word%%.*}
}

# is_of_other NAME: it is the module of another driver, which owner names.
is_of_other() {
    read_owner "$1"
    case $owner in '' | "$this_driver" | *[!a-z0-9.-]*) return 1 ;; esac
    case $state in
    live) is_live "$1" ;;
    '' | *[!0-9]*) return 1 ;;
    *) [ "$state" -le "$uptime" ] && [ "$state" -gt "$((uptime - claim_seconds))" ] ;;
    esac
}

# stays NAME: the module is live, is this image's build, and is not reloaded.
stays() {
    # shellcheck disable=SC2086  # names are words
    ! is_among "$1" $doomed && is_ours "$1"
}

# is_complete: every module of ours is live and stays, so that none needs room.
is_complete() {
    local name
    for name in $modules; do
        stays "$name" || return 1
    done
}

# leave WHY: a module stays loaded, and the verdict reports why.
leave() {
    spared_because="${spared_because:+$spared_because; }$1: not unloaded"
    say "$1: not unloaded"
}

# spare NAME WHY: a module of inTreeModulesToRemove stays loaded, and the verdict reports why; nothing for any other module.
spare() {
    local name others=''
    # shellcheck disable=SC2086  # names are words
    is_among "$1" $leaving || return 0
    for name in $leaving; do
        is_among "$name" "$1" || others="$others $name"
    done
    leaving=$others spared="$spared $1"
    leave "module $1 of spec.module.inTreeModulesToRemove $2"
}

# conflict_over NAME: prints why another driver's module is not touched.
conflict_over() {
    local does=blacklist first=${owner%%.*}/${owner#*.} second=${this_driver%%.*}/${this_driver#*.}
    # shellcheck disable=SC2086  # names are words
    ! is_among "$1" $to_remove || does=remove
    # shellcheck disable=SC2086  # names are words
    ! is_among "$1" $modules || does=replace
    if [ "$state" = live ]; then
        printf 'module %s was loaded on this node by driver %s, and driver %s would %s it' "$1" "$first" "$second" "$does"
        printf ': let only one of them name it, or select different nodes; if %s no longer exists, rmmod it or reboot the node' "$first"
    else
        printf 'driver %s is loading or unloading module %s, and driver %s would %s it' "$first" "$1" "$second" "$does"
    fi
}

# claim_modules: refuses, before anything is touched, when a module that is to be loaded, replaced, removed or blacklisted is
# another driver's; otherwise claims them. Where nothing of ours needs room, another driver's modules stay. Fails while another
# one loads what ours only need: it is about to be there.
claim_modules() {
    local name
    [ -n "$this_driver" ] && [ -d "$run_folder" ] || return 0
    read_uptime
    lock_owners || say "$owners cannot be written: another driver may replace or remove what is loaded"
    for name in $leaving $modules $blacklist; do
        ! stays "$name" && is_of_other "$name" || continue
        if is_complete; then
            spare "$name" "belongs to driver ${owner%%.*}/${owner#*.}"
            continue
        fi
        unlock_owners
        # shellcheck disable=SC2086  # names are words
        if is_among "$name" $needed && [ "$state" != live ] && [ "$waited_for_claims" -lt "$depends_timeout" ]; then
            [ "$waited_for_claims" -gt 0 ] || say "waiting for module $name, which driver ${owner%%.*}/${owner#*.} is loading or unloading"
            waited_for_claims=$((waited_for_claims + 1))
            sleep 1
            return 1
        fi
        refuse ModuleConflict "$name" "$(conflict_over "$name")"
    done
    for name in $leaving $modules; do
        if is_of_other "$name"; then
            # A removal of the other driver would unload it.
            [ "$state" = live ] && is_ours "$name" && came_along "$name" || continue
            write_owner "$name" live
        elif [ "$owner $state" = "$this_driver live" ] && is_live "$name"; then
            continue
        elif is_ours "$name"; then
            write_owner "$name" live
        else
            write_owner "$name" "$uptime"
        fi
    done
    unlock_owners
}

# came_along NAME: its owner has loaded it because it needs it, and does not name it.
came_along() {
    local found
    underscore "$1"
    set +f
    cat "$run_folder/$owner"-*.needed 2>/dev/null | grep -q "^$word "
    found=$?
    set -f
    return "$found"
}

# find_missing: sets first and missing to a driver of DEPENDS and a module that it has not loaded; fails where all are. The
# kernel's own build of the module is not that driver's, and one that is being reloaded is about to go.
find_missing() {
    local entry left
    for entry in ${DEPENDS:-}; do
        first=${entry%%:*} left=${entry#*:},
        while [ -n "$left" ]; do
            missing=${left%%,*} left=${left#*,}
            read_owner "$missing"
            [ "$owner $state" = "$first live" ] && is_live "$missing" || return 0
        done
    done
    return 1
}

# wait_for_dependencies: before anything is touched. What is loaded already stays, whatever became of the others.
wait_for_dependencies() {
    local waited=0
    ! is_complete || return 0
    while find_missing; do
        [ "$waited" -lt "$depends_timeout" ] ||
            refuse WaitingForDependency "$missing" "driver ${first%%.*}/${first#*.} has not loaded module $missing on this node (waited $depends_timeout s)"
        [ "$waited" -gt 0 ] || say "waiting for module $missing of driver ${first%%.*}/${first#*.}"
        sleep 1
        waited=$((waited + 1))
    done
}

# claim_doomed: a module of ours that is reloaded stays ours while it is unloaded.
claim_doomed() {
    local name
    for name in $doomed; do
        read_owner "$name"
        [ -n "$this_driver" ] && [ "$owner $state" = "$this_driver live" ] || continue
        away="$away $name"
        read_uptime
        write_owner "$name" "$uptime"
    done
}

# drop_claims: removes the claims on what is not loaded; what is still live is ours as before. No lock: other loaders respect
# a claim until it is too old.
drop_claims() {
    local name
    [ -n "$this_driver" ] && [ -d "$owners" ] || return 0
    for name in $leaving $spared $modules; do
        read_owner "$name"
        [ "$owner" = "$this_driver" ] && [ "$state" != live ] || continue
        # shellcheck disable=SC2086  # names are words
        if is_among "$name" $away && is_live "$name"; then
            write_owner "$name" live
        else
            underscore "$name"
            rm -f "$owners/$word"
        fi
    done
}

# drop_modules [NAME]...: this driver owns only these of the node's modules from now on.
drop_modules() {
    local file files
    [ -n "$this_driver" ] || return 0
    names_in "$owners"
    files=$word
    for file in $files; do
        read_owner "$file"
        [ "$owner" != "$this_driver" ] || is_among "$file" "$@" || rm -f "$owners/$file"
    done
}

# --- Making room. All modules to unload are found first, and none is unloaded unless all can be.

# names_in FOLDER: sets word to the names of a folder's entries.
names_in() {
    local entry
    word=
    set +f
    for entry in "$1"/*; do
        [ -e "$entry" ] && word="$word ${entry##*/}"
    done
    set -f
}

# usage_of NAME: prints what holds a live module, as far as sysfs says: other modules, or what its devices are used by.
usage_of() {
    local count='?' device class files=
    find_module "$1"
    read -r count 2>/dev/null <"$directory/refcnt"
    names_in "$directory/holders"
    printf 'refcnt %s%s' "$count" "${word:+, used by modules$word}"
    find_devices "$1" || return 0
    for device in $devices; do
        for class in net block misc drm sound tty; do
            set +f
            for word in "$directory"/drivers/*/"$device/$class"/*; do
                [ -e "$word" ] && files="$files ${word##*/}"
            done
            set -f
        done
    done
    printf ', devices%s%s' "$devices" "${files:+ as$files}"
}

# is_in_use NAME OTHER...: something besides the others uses the module.
is_in_use() {
    local name=$1 users=0 holder
    shift
    find_module "$name"
    read -r users 2>/dev/null <"$directory/refcnt"
    names_in "$directory/holders"
    for holder in $word; do
        ! is_among "$holder" "$@" || users=$((users - 1))
    done
    [ "$users" -gt 0 ]
}

# has_holder_among NAME OTHER...: one of the others uses the module.
has_holder_among() {
    local name=$1 holder
    shift
    find_module "$name"
    names_in "$directory/holders"
    for holder in $word; do
        ! is_among "$holder" "$@" || return 0
    done
    return 1
}

# unload NAME: sets reason when the module stays.
unload() {
    local output
    find_module "$1"
    output=$("$rmmod" "${directory##*/}" 2>&1) && ! is_live "$1" && return
    reason="module $1 is in use ($(usage_of "$1")): ${output:-it is still loaded}"
    return 1
}

# unload_all NAME...: in this order, but users before what they use; sets remaining to what stays.
unload_all() {
    local name left=$* later progress=yes
    while [ -n "$progress" ]; do
        progress='' later=''
        for name in $left; do
            is_live "$name" || continue
            # shellcheck disable=SC2086  # names are words
            if has_holder_among "$name" $left; then
                later="$later $name"
                continue
            fi
            unload "$name" || {
                remaining=$left
                return 1
            }
            progress=yes
            # shellcheck disable=SC2086  # names are words
            ! is_among "$name" $to_remove $replaced || removed="$name $removed"
            say "unloaded $name"
        done
        left=$later
    done
    remaining=$left
    [ -z "$left" ] || reason="modules$left use each other"
    [ -z "$left" ]
}

# is_number TEXT: as the kernel reads them, and short enough to be compared here.
is_number() {
    local text=${1#-}
    [ "${#text}" -le 18 ] || return 1
    case $text in
    0x | 0X | '') return 1 ;;
    0[xX]*) text=${text#0[xX]} && [ "$text" = "${text%%[!0-9a-fA-F]*}" ] ;;
    0*) [ "$text" = "${text%%[!0-7]*}" ] ;;
    *) [ "$text" = "${text%%[!0-9]*}" ] ;;
    esac
}

# is_same HAVE WANT: nothing says that the two differ. A kernel shows booleans as Y or N and numbers in decimal; a driver's
# own words cannot be compared with a number.
is_same() {
    [ "$1" != "$2" ] || return 0
    case $1,$2 in
    Y,[0nNfF]* | Y,[oO][fF]* | N,[1yYtT]* | N,[oO][nN]*) return 1 ;;
    Y,* | N,*) return 0 ;;
    esac
    if is_number "$1" && is_number "$2"; then
        [ "$(($1))" -eq "$(($2))" ]
        return
    fi
    case $1,$2 in [-0-9]* | *,[-0-9]*) ;; *) return 1 ;; esac
}

# read_recorded NAME: sets recorded to the parameters that this module of ours was loaded with in this boot.
read_recorded() {
    local boot name words
    recorded=
    underscore "$1"
    [ -r "$parameters_file" ] || return 0
    while read -r boot name words; do
        [ "$boot $name" != "$boot_id $word" ] || recorded=$words
    done <"$parameters_file"
}

# record_parameters NAME PARAMETERS: records until the next boot what a module of ours was loaded with.
record_parameters() {
    local line kept=''
    [ -n "${DRIVER:-}" ] || return 0
    [ -n "$2" ] || [ -e "$parameters_file" ] || return 0
    underscore "$1"
    if [ -r "$parameters_file" ]; then
        while IFS= read -r line; do
            case $line in
            "$boot_id $word "*) ;;
            "$boot_id "*) kept="$kept$line
" ;;
            esac
        done <"$parameters_file"
    fi
    printf '%s%s %s %s\n' "$kept" "$boot_id" "$word" "$2" 2>/dev/null >"$parameters_file" ||
        say "$parameters_file cannot be written: the next pod compares the spec's parameters with those in sysfs"
}

# find_difference NAME: sets parameter, have and want to the first parameter that the live module shows otherwise than the
# image wants it; fails without any. What the module was loaded with does not differ: a driver may show it in another
# form, and an admin may have changed it since. What cannot be read is not compared.
find_difference() {
    local words left have_left
    look_up modules "$1"
    words=$found
    read_recorded "$1"
    for want in $words; do
        case " $recorded " in *" $want "*) continue ;; esac
        underscore "${want%%=*}"
        parameter=$word
        find_module "$1"
        have=
        read -r have 2>/dev/null <"$directory/parameters/$parameter" || [ -n "$have" ] || continue
        # Without a value it is a boolean.
        case $want in *=*) want=${want#*=} ;; *) want=Y ;; esac
        # Lists have commas; one that is shown longer is shown with what was not given.
        left=$want, have_left=$have,
        while [ -n "$left" ] && [ -n "$have_left" ]; do
            is_same "${have_left%%,*}" "${left%%,*}" || return 0
            left=${left#*,} have_left=${have_left#*,}
        done
    done
    return 1
}

# is_rebuild_new: a rebuild of the driver or for this node was requested after what is loaded was loaded.
is_rebuild_new() {
    local entry driver_before=- node_before=-
    for entry in ${NODE_REBUILDS:-}; do
        [ "${entry%%:*}" != "${NODE_NAME:-}" ] || node_rebuild=${entry#*:}
    done
    read -r driver_before node_before 2>/dev/null <"$rebuild_file"
    # A request that is gone counts as it was.
    rebuild=${rebuild:-${driver_before:--}} node_rebuild=${node_rebuild:-${node_before:--}}
    [ "$rebuild $node_rebuild" != "${driver_before:--} ${node_before:--}" ]
}

write_rebuild() {
    [ -n "$rebuild" ] && [ "$rebuild $node_rebuild" != '- -' ] || return 0
    printf '%s %s\n' "$rebuild" "$node_rebuild" 2>/dev/null >"$rebuild_file" ||
        say "$rebuild_file cannot be written: the next pod reloads the driver again"
}

# is_leaving NAME: the module is live and is not this image's build.
is_leaving() {
    is_live "$1" && ! is_ours "$1"
}

# stands_on_doomed NAME: it uses a module of ours that is unloaded.
stands_on_doomed() {
    local below
    for below in $doomed; do
        ! has_holder_among "$below" "$1" || return 0
    done
    return 1
}

# is_identity NAME IDENTITY: a module of this name is live, and has this srcversion or build id.
is_identity() {
    local kind
    is_live "$1" || return 1
    for kind in srcversion buildID; do
        find_module "$1"
        read_identity "$kind"
        [ "$actual" != "$2" ] || return 0
    done
    return 1
}

# find_along: sets along to what this driver has loaded besides in this boot, the last loaded first.
find_along() {
    local name identity boot=''
    along=
    {
        read -r boot
        while [ "$boot" = "$boot_id" ] && read -r name identity; do
            is_identity "$name" "$identity" && ! is_of_other "$name" || continue
            case " ${UNLOAD:-} " in *" $name:"*) ;; *) along="$along $name" ;; esac
        done
    } 2>/dev/null <"$needed_file"
}

# find_riders NAMES: sets riders to what stands on these modules, and on that, and is none of them.
find_riders() {
    local name
    riders=
    for name in $1; do
        add_riders "$name" "$1"
    done
}

add_riders() {
    local name
    find_module "$1"
    names_in "$directory/holders"
    for name in $word; do
        # shellcheck disable=SC2086  # names are words
        is_among "$name" $2 $riders && continue
        riders="$riders $name"
        add_riders "$name" "$2"
    done
}

# doom_riders: what this driver has loaded besides goes with what it stands on.
doom_riders() {
    local name
    [ -n "$doomed" ] || return 0
    find_along
    find_riders "$doomed"
    for name in $riders; do
        # shellcheck disable=SC2086  # names are words
        ! is_among "$name" $along || doomed="$name $doomed"
    done
}

# find_leaving: sets leaving to modules that make room for ours.
find_leaving() {
    local name
    leaving='' doomed='' other_build='' differing='' rebuild=
    for name in $to_remove; do
        # shellcheck disable=SC2086  # names are words
        ! is_leaving "$name" || is_among "$name" $modules || leaving="$leaving $name"
    done
}

# find_doomed: sets leaving to modules that make room for ours, doomed to ours that are live and must be reloaded with
# those of ours that use them, last loaded first; other_build and differing name the first one that is the cause.
find_doomed() {
    local name anew=''
    find_leaving
    rebuild=${REBUILD:-} node_rebuild=
    ! is_rebuild_new || anew=yes
    for name in $modules; do
        is_live "$name" || continue
        # shellcheck disable=SC2086  # names are words
        if ! is_ours "$name"; then
            other_build=${other_build:-$name}
        elif find_difference "$name"; then
            differing=${differing:-$name}
        elif [ -z "$anew" ] && ! stands_on_doomed "$name"; then
            continue
        fi
        doomed="$name $doomed"
    done
    doom_riders
}

# spare_used: where nothing of ours needs room, modules in use stay, and the modules that they use.
spare_used() {
    local name again=yes
    is_complete || return 0
    while [ -n "$again" ]; do
        again=
        for name in $leaving; do
            # shellcheck disable=SC2086  # names are words
            is_in_use "$name" $leaving || continue
            spare "$name" "is in use ($(usage_of "$name"))"
            again=yes
        done
    done
}

# check_room: refuses, before anything is unloaded, when a module that must be unloaded cannot.
check_room() {
    local name
    spare_used
    for name in $leaving; do
        # shellcheck disable=SC2086  # names are words
        ! is_in_use "$name" $leaving $doomed ||
            refuse LoadFailed "$name" "module $name is in use ($(usage_of "$name")) and cannot be unloaded, as spec.module.inTreeModulesToRemove asks: stop what uses it, add the modules that use it to that list, or put it on spec.module.blacklist and reboot the node"
    done
    for name in $doomed; do
        # shellcheck disable=SC2086  # names are words
        is_in_use "$name" $leaving $doomed || continue
        if [ -n "$other_build" ]; then
            refuse LoadFailed "$name" "a different build of $other_build is loaded and cannot be replaced: module $name is in use ($(usage_of "$name"))"
        elif [ -n "$differing" ]; then
            find_difference "$differing"
            refuse ParametersDiffer "$differing" "module $differing is loaded with $parameter=$have instead of $parameter=$want, and module $name is in use ($(usage_of "$name")): stop what uses it, and the driver is reloaded" \
                ",\"parameter\":$(quoted "$parameter"),\"have\":$(quoted "$have"),\"want\":$(quoted "$want")"
        fi
        say "module $name is in use ($(usage_of "$name")): the driver is not reloaded; the loaded build is the right one"
        doomed='' rebuild=''
        return
    done
}

make_room() {
    local name
    claim_doomed
    # shellcheck disable=SC2086  # names are words
    unload_all $leaving $doomed && return
    is_complete || refuse LoadFailed "${remaining##* }" "$reason"
    for name in $remaining; do
        ! is_live "$name" || spare "$name" "could not be unloaded ($reason)"
    done
}

# --- Loading.

# modules_dep FOLDER NAME: prints a module's file and the files it depends on, as the folder's modules.dep has them.
modules_dep() {
    [ -z "$is_vendors" ] || [ -e "$1/modules.dep" ] || {
        # A vendor's image may have the files alone.
        (cd "$1" 2>/dev/null && find . -name "$(echo "$2" | sed 's/[-_]/[-_]/g').ko*" | sort | sed -n '1s,^\./,,p')
        return
    }
    awk -v name="$2" '
        BEGIN { gsub(/-/, "_", name) }
        {
            base = $1
            sub(/:$/, "", base); sub(/^.*\//, "", base); sub(/\.ko.*$/, "", base); gsub(/-/, "_", base)
            if (base == name) { sub(/:/, ""); print; exit }
        }' "$1/modules.dep" 2>/dev/null
}

# kernel_sentence NAME: prints the kernel's last message about a module since $before, except that it is tainted.
kernel_sentence() {
    "$dmesg" 2>/dev/null | BEFORE=$before awk -v name="$1" '
        BEGIN { gsub(/-/, "_", name) }
        $0 == ENVIRON["BEFORE"] { said = ""; next }
        /taint/ { next }
        index($0, name) || /module/ { said = $0 }
        END { sub(/^(<[0-9]+>)?\[[^]]*\] */, "", said); print said }'
}

# provide_unzstd: sets unzstd to the program at the end of this file, where it can be run until this run ends; fails without
# one.
provide_unzstd() {
    local size folder
    [ -z "$unzstd" ] || return 0
    size=$(tail -c 11 "$0" | tr -d '\n')
    size=${size##* }
    case $size in '' | *[!0-9]*) return 1 ;; esac
    trap 'rm -rf "$plain_folder" "$dev_folder"' EXIT
    for folder in "$plain_folder" "$dev_folder"; do
        {
            mkdir -p "$folder" && tail -c "$((size + 11))" "$0" | head -c "$size" | zcat >"$folder/unzstd" &&
                chmod 0700 "$folder/unzstd"
        } 2>/dev/null || continue
        # Of nothing it makes nothing, and fails.
        "$folder/unzstd" </dev/null >/dev/null 2>&1
        [ "$?" -lt 126 ] || continue
        unzstd=$folder/unzstd
        return
    done
    return 1
}

# plain_of FILE: prints a module's file, decompressed.
plain_of() {
    case $1 in
    *.gz) zcat "$1" ;;
    *.xz) xzcat "$1" ;;
    *.zst) provide_unzstd && "$unzstd" <"$1" ;;
    *) cat "$1" ;;
    esac
}

# insert MODULE FILE [PARAMETER]...: never with force, which would load a module that does not fit the kernel.
insert() {
    local name=$1 file=$2 output sentence before plain=''
    shift 2
    case $file in *.zst)
        # insmod knows the other kinds, and so may a kernel, but a kernel only one.
        plain=$plain_folder/$name.ko
        { provide_unzstd && plain_of "$file" >"$plain"; } 2>/dev/null ||
            refuse LoadFailed "$name" "$file cannot be decompressed to $run_folder of the node: is it damaged, or the node's /run full?"
        ;;
    esac
    before=$("$dmesg" 2>/dev/null | tail -n 1)
    output=$("$insmod" "${plain:-$file}" "$@" 2>&1) && {
        rm -f "$plain"
        return
    }
    sentence=$(kernel_sentence "$name")
    refuse LoadFailed "$name" "${sentence:-$output}"
}

# base_name FILE: sets word to the module's name of a file below /lib/modules.
base_name() {
    word=${1##*/}
    word=${word%%.ko*}
}

# is_there FILE: what modules.dep names is there. KMM's images may name modules of the kernel's own, by a link to where the
# pod has none.
is_there() {
    [ -z "$is_vendors" ] || [ -e "$1" ]
}

# insert_with_dependencies FOLDER NAME [PARAMETER]...: fails when the folder has no such module.
insert_with_dependencies() {
    local folder=$1 name=$2 files file others=''
    shift 2
    files=$(modules_dep "$folder" "$name")
    [ -n "$files" ] && is_there "$folder/${files%% *}" || return 1
    # modules.dep names the nearest dependency first; the kernel needs the farthest first.
    for file in ${files#* }; do
        [ "$file" = "${files%% *}" ] || others="$file $others"
    done
    for file in $others; do
        base_name "$file"
        ! is_live "$word" || continue
        if is_there "$folder/$file"; then
            insert "$word" "$folder/$file"
        elif ! insert_with_dependencies "$host_modules/$kernel" "$word"; then
            refuse LoadFailed "$name" "module $name needs $file, which is neither in the image nor in $host_modules/$kernel"
        fi
    done
    insert "$name" "$folder/${files%% *}" "$@"
}

load_dependency() {
    is_live "$2" && return
    insert_with_dependencies "$image_modules/$kernel" "$2" && return
    insert_with_dependencies "$host_modules/$kernel" "$2" && return
    refuse LoadFailed "$1" "module $1 needs module $2, which is not loaded, not in the image and not in $host_modules/$kernel"
}

# find_soft NAME: sets soft_before and soft_after to what a module asks for and does not need (MODULE_SOFTDEP).
find_soft() {
    local index=$image_modules/$kernel/modules.softdep words file into=''
    soft_before='' soft_after=''
    if [ -e "$index" ]; then
        words=$(awk -v name="$1" '
            BEGIN { gsub(/-/, "_", name) }
            { other = $2; gsub(/-/, "_", other) }
            $1 == "softdep" && other == name { $1 = $2 = ""; print }' "$index")
    else
        file=$(modules_dep "$image_modules/$kernel" "$1")
        words=$(strings_of "$image_modules/$kernel/${file%% *}" 2>/dev/null | sed -n 's/^softdep=//p')
    fi
    for word in $words; do
        case $word in
        pre: | post:) into=$word ;;
        *[!A-Za-z0-9_-]*) ;;
        *)
            [ "$into" != pre: ] || soft_before="$soft_before $word"
            [ "$into" != post: ] || soft_after="$soft_after $word"
            ;;
        esac
    done
}

# load_soft NAME OTHER: as modprobe does it: its failure is not the other module's. What then stands on ours goes with it.
load_soft() {
    local name before
    ! is_live "$1" || return 0
    # shellcheck disable=SC2086  # names are words
    if is_among "$1" $modules; then
        is_among "$1" $loading || load_module "$1"
    elif ! is_among "$1" $blacklist $to_remove; then
        find_riders "$modules"
        before=$riders
        if (
            is_soft=yes
            insert_with_dependencies "$image_modules/$kernel" "$1" || insert_with_dependencies "$host_modules/$kernel" "$1"
        ) >/dev/null 2>&1; then
            say "loaded $1, for which $2 asks"
            find_riders "$modules"
            for name in $riders; do
                # shellcheck disable=SC2086  # names are words
                is_among "$name" $before || asked="$name $asked"
            done
        else
            say "$1, for which $2 asks, is not loaded: the node has no such module, or refuses it"
        fi
    fi
}

# is_built_in NAME: it is part of the node's kernel.
is_built_in() {
    grep -q "/$(echo "$1" | sed 's/[-_]/[-_]/g')\.ko" "$host_modules/$kernel/modules.builtin" 2>/dev/null
}

# load_in_tree: loads the modules of the kernel's own that the spec asks for. Where all of ours are live they work without.
load_in_tree() {
    local name why is_kept=''
    ! is_complete || is_kept=yes
    for name in $to_load; do
        # shellcheck disable=SC2086  # names are words
        is_live "$name" || is_built_in "$name" || is_among "$name" $modules && continue
        if [ -n "$is_kept" ]; then
            (
                is_soft=yes
                insert_with_dependencies "$host_modules/$kernel" "$name"
            ) >/dev/null 2>&1 && continue
            spared_because="${spared_because:+$spared_because; }module $name of spec.module.inTreeModulesToLoad cannot be loaded"
            continue
        fi
        insert_with_dependencies "$host_modules/$kernel" "$name" ||
            refuse LoadFailed "$name" "module $name of spec.module.inTreeModulesToLoad is not among the modules of the node's kernel in $host_modules/$kernel"
    done
}

load_module() {
    local dependency parameters after
    if is_ours "$1"; then
        say "module $1 is already loaded"
        # It may have come a moment ago, with one that needs it.
        read_owner "$1"
        [ "$owner" != "$this_driver" ] || write_owner "$1" live
        return
    fi
    loading="$loading $1"
    find_soft "$1"
    after=$soft_after
    for dependency in $soft_before; do
        load_soft "$dependency" "$1"
    done
    look_up depends "$1" || look_up_in "$needed_depends" "$1"
    for dependency in $found; do
        load_dependency "$1" "$dependency"
    done
    look_up modules "$1"
    parameters=$found
    # If this run is killed in between, the old record must not stand.
    record_parameters "$1" ""
    # shellcheck disable=SC2086  # each parameter is a word of its own
    insert_with_dependencies "$image_modules/$kernel" "$1" $parameters ||
        refuse LoadFailed "$1" "the image has no module $1 in ${image_modules#"$image"}/$kernel/modules.dep"
    is_live "$1" || refuse LoadFailed "$1" "module $1 was inserted but is not live"
    identify "$1" || refuse LoadFailed "$1" "the image has no identity of module $1 in /driver/identities"
    is_ours "$1" || refuse LoadFailed "$1" "module $1 is loaded with $kind ${actual:-none}; the image's has $expected"
    write_owner "$1" live
    record_parameters "$1" "$parameters"
    # shellcheck disable=SC2086  # names are words
    ! is_among "$1" $needed || came="$1 $came"
    for dependency in $after; do
        load_soft "$dependency" "$1"
    done
}

# --- What the named modules need of the image.

# needed_by NAME: prints the files of the image that a module needs, the farthest first, and its own.
needed_by() {
    local file files='' folder=$image_modules/$kernel
    if [ -n "$is_vendors" ] && ! [ -e "$folder/modules.dep" ]; then
        look_up depends "$1"
        for file in $found; do
            modules_dep "$folder" "$file"
        done
        return
    fi
    for file in $(modules_dep "$folder" "$1"); do
        files="$file $files"
    done
    echo "$files"
}

# add_needed: puts the modules of the image that the named ones need before them in modules.
add_needed() {
    local name file below identity all=''
    named=$modules
    for name in $named; do
        for file in $(needed_by "$name"); do
            base_name "$file"
            underscore "$word"
            below=$word
            # shellcheck disable=SC2086  # names are words
            ! is_among "$below" $named $needed || continue
            # KMM's images may only name what is the kernel's own.
            identity=$(identity_of "$image_modules/$kernel/$file" 2>/dev/null) || continue
            needed="$needed $below" all="$all $below"
            needed_identities="$needed_identities$below $identity|"
            needed_depends="$needed_depends$below $(depends_of "$image_modules/$kernel/$file")|"
        done
        all="$all $name"
    done
    modules=$all
}

# drop_needed NAME: it is not one of this driver's modules.
drop_needed() {
    local name all=''
    for name in $modules; do
        [ "$name" = "$1" ] || all="$all $name"
    done
    modules=$all
}

# is_nodes_own NAME: the live module is the one that the node's kernel came with.
is_nodes_own() {
    local live files
    find_module "$1"
    files=$(modules_dep "$host_modules/$kernel" "$1")
    live=$(identity_of "$host_modules/$kernel/${files%% *}" 2>/dev/null) || return 1
    read_identity "${live%% *}"
    [ "${live#* }" = "$actual" ]
}

# leave_foreign: what is live under the name of a module that is needed and not named, and was not loaded by this driver, is
# replaced only where a named module has to be loaded and nothing else uses it, nor a device the kernel's own. Otherwise it
# stays: drivers that work stay as they are. The same build may be the kernel's own: it stays, and is not this driver's.
leave_foreign() {
    local name others='' all=$modules is_kept='' is_own why
    modules=$named
    find_doomed
    ! is_complete || is_kept=yes
    modules=$all
    find_along
    # From the top: what stands on another one is replaced before it.
    for name in $needed; do
        others="$name $others"
    done
    for name in $others; do
        # shellcheck disable=SC2086  # names are words
        is_live "$name" && is_among "$name" $modules && ! is_among "$name" $along || continue
        read_owner "$name"
        if is_ours "$name"; then
            [ -n "$owner" ] && [ "$owner" = "$this_driver" ] || drop_needed "$name"
            continue
        fi
        [ "$owner $state" != "$this_driver live" ] || continue
        read_uptime
        is_own=
        ! is_nodes_own "$name" || is_own=yes
        # shellcheck disable=SC2086  # names are words
        if is_of_other "$name"; then
            why="belongs to driver ${owner%%.*}/${owner#*.}"
        elif [ -n "$is_kept" ]; then
            why="was not loaded by this driver, whose other modules are loaded: a reboot or a rebuild replaces it"
        elif is_in_use "$name" $leaving $doomed || { [ -n "$is_own" ] && find_devices "$name"; }; then
            why="is in use ($(usage_of "$name"))"
        else
            doomed="$doomed $name"
            [ -z "$is_own" ] || replaced="$replaced $name"
            continue
        fi
        drop_needed "$name"
        leave "module $name, which the image has in another build, $why"
    done
}

# record_needed: records what is loaded of the modules that are needed or asked for and not named, for `unload`: the last loaded
# first. What an earlier image had stays recorded.
record_needed() {
    local name kind lines='' above='' boot=''
    [ -n "${DRIVER:-}" ] || return 0
    for name in $asked; do
        find_module "$name"
        for kind in srcversion buildID; do
            read_identity "$kind"
            [ -z "$actual" ] || break
        done
        [ -z "$actual" ] || above="$above$name $actual
"
    done
    for name in $needed; do
        # shellcheck disable=SC2086  # names are words
        is_among "$name" $modules && is_ours "$name" || continue
        read_owner "$name"
        [ "$owner $state" = "$this_driver live" ] || continue
        lines="$name $actual
$lines"
    done
    lines=$above$lines
    [ -n "$lines" ] || [ -e "$needed_file" ] || return 0
    {
        read -r boot
        while [ "$boot" = "$boot_id" ] && read -r name actual; do
            # shellcheck disable=SC2086  # names are words
            is_among "$name" $modules $asked || lines="$lines$name $actual
"
        done
    } 2>/dev/null <"$needed_file"
    { printf '%s\n%s' "$boot_id" "$lines" >"$needed_file.new" && mv -f "$needed_file.new" "$needed_file"; } 2>/dev/null ||
        say "$needed_file cannot be written: modules$needed stay loaded when the driver is removed"
}

# --- A vendor's image: the data files are made here.

# build_id_of FILE: prints the build id in a module's first note: "GNU" after its sizes and its type.
build_id_of() {
    plain_of "$1" | head -c 4096 | od -An -v -tx1 | tr -d ' \n' |
        sed -n 's/.*040000001400000003000000474e5500\([0-9a-f]\{40\}\).*/\1/p'
}

# strings_of FILE: prints the strings of a module's file, each on a line.
strings_of() {
    plain_of "$1" | tr '\000' '\n'
}

# depends_of FILE: prints the modules that a module needs, in one line.
depends_of() {
    strings_of "$1" | sed -n 's/^depends=\([A-Za-z0-9_,-]*\)$/\1/p' | tr ',\n' '  '
}

# identity_of FILE: prints what /sys/module must show of a module; fails where nothing could.
identity_of() {
    local identity
    identity=$(strings_of "$1" | sed -n 's/^srcversion=\([0-9A-Fa-f]\{1,\}\)$/srcversion \1/p' | head -n 1)
    [ -n "$identity" ] || identity="buildID $(build_id_of "$1")"
    [ "$identity" != "buildID " ] && printf '%s\n' "$identity"
}

# describe_image: writes what the files of a vendor's modules say of themselves, as a build of ours does.
describe_image() {
    local name file alias identity
    [ -z "$image_firmware" ] || [ -n "$(firmware_files)" ] ||
        refuse LoadFailed "${modules##* }" "the image has no files in $FIRMWARE_PATH, as spec.module.firmwarePath asks"
    for name in $modules; do
        file=$(modules_dep "$image_modules/$kernel" "$name")
        file=$image_modules/$kernel/${file%% *}
        [ -f "$file" ] || refuse LoadFailed "$name" "the image has no module $name in ${image_modules#"$image"}/$kernel: set dirName of the kernel mapping to the folder with lib/modules"
        case $file in
        *.ko | *.ko.gz | *.ko.xz) ;;
        *.ko.zst) provide_unzstd || refuse LoadFailed "$name" "the loader has no program that decompresses ${file#"$image"}: is its image complete?" ;;
        *) refuse LoadFailed "$name" "the loader cannot read ${file#"$image"}: put it into the image uncompressed, or as .gz, .xz or .zst" ;;
        esac
        alias=$(strings_of "$file" | grep -E '^alias=(bcma|pci|ssb|usb|virtio|vmbus|xen):' | head -n 1)
        identity=$(identity_of "$file") ||
            refuse LoadFailed "$name" "${file#"$image"} has neither a srcversion nor a build id, so nothing could prove that it is loaded"
        printf '%s %s\n' "$name" "$identity" >>"$data/identities"
        printf '%s %s\n' "$name" "$(depends_of "$file")" >>"$data/depends"
        [ -z "$alias" ] || printf '%s\n' "$name" >>"$data/needs-device"
    done
}

# A driver may bind its device a moment after it was loaded.
wait_for_device() {
    local waited=0
    look_up needs-device "$1" || return 0
    until find_devices "$1"; do
        [ "$waited" -lt "$device_timeout" ] ||
            refuse NoDevice "$1" "module $1 is loaded, but no device is bound to it (waited $device_timeout s)${spared_because:+; $spared_because}"
        sleep 1
        waited=$((waited + 1))
    done
}

# udev makes the node of a device a moment after the kernel has it, where devtmpfs does not.
wait_for_device_node() {
    local waited=0
    until find_device_node "$1"; do
        [ "$waited" -lt "$device_timeout" ] ||
            refuse DeviceNodeMissing "${modules##* }" "the modules are loaded, but device node $1 of spec.validation.deviceNodes is missing (waited $device_timeout s)"
        sleep 1
        waited=$((waited + 1))
    done
}

# --- The commands.

# The node's labels lag behind its kernel after a reboot: the pod waits until it is replaced.
wrong_kernel="the pod waits until the node's labels name the running kernel"

load() {
    local name
    if [ "$kernel" != "$built_for" ]; then
        write_verdict WrongKernel ",\"builtFor\":$(quoted "$built_for")"
        say "WrongKernel: the node runs $kernel, this image is for $built_for: $wrong_kernel"
        return
    fi
    [ -z "$is_vendors" ] || describe_image
    add_needed
    wait_for_program
    while
        leave_foreign
        find_doomed
        wait_for_dependencies
        ! claim_modules
    do :; done
    write_blacklist
    check_room
    check_blacklist
    copy_firmware
    copy_userspace
    make_room
    load_in_tree
    for name in $modules; do
        load_module "$name"
    done
    drop_claims
    record_needed
    # Modules that the driver had and no longer names are free for others.
    # shellcheck disable=SC2086  # names are words
    drop_modules $modules
    # Before waiting for devices: when one binds too slowly, the next run must not reload again.
    write_rebuild
    export_userspace
    for name in $modules; do
        wait_for_device "$name"
    done
    for name in $device_nodes; do
        wait_for_device_node "$name"
    done
    write_loaded
}

# idle: until SIGTERM.
idle() {
    while :; do
        sleep 60 >/dev/null 2>&1 &
        wait
    done
}

# is_ending: the program of another pod of this driver still runs, and may unload the modules as it ends.
is_ending() {
    local found
    set +f
    cat "$proc"/[0-9]*/environ 2>/dev/null | tr '\000' '\n' | grep -Fqx "DRIVERWRIGHT_DRIVER=$this_driver"
    found=$?
    set -f
    return "$found"
}

# wait_for_program: until that of the pod before has ended, where this pod sees the node's processes.
wait_for_program() {
    local waited=0
    while is_ending && [ "$waited" -lt "$ending_seconds" ]; do
        [ "$waited" -gt 0 ] || say "waiting for the program of the pod before"
        sleep 1
        waited=$((waited + 1))
    done
}

# find_loaded_by_us: sets doomed to the modules that an image before this one had our loader load, last loaded first, and
# other_build to one of them. A program that finds them live may leave them alone, and would be proven by them.
find_loaded_by_us() {
    local file name proven_boot='' proven=''
    set +f
    for file in "$run_folder/$this_driver"-*.live; do
        {
            read -r proven_boot _
            while [ "$proven_boot" = "$boot_id" ] && read -r name _; do
                proven="$proven $name"
            done
        } 2>/dev/null <"$file"
    done
    set -f
    for name in $modules; do
        read_owner "$name"
        # What a program has loaded is for a program to replace.
        # shellcheck disable=SC2086  # names are words
        [ "$owner $state" = "$this_driver live" ] && is_live "$name" && ! is_among "$name" $proven || continue
        other_build=$name
        doomed="$name $doomed"
    done
    doom_riders
}

# What is live of the modules is the image's own program's: it is neither replaced nor unloaded here, but for what our
# loader loaded before. So are files of an image before, which do not belong to what the program loads.
prepare() {
    trap stop TERM INT
    if [ "$kernel" != "$built_for" ]; then
        say "WrongKernel: the node runs $kernel, this pod is for $built_for: $wrong_kernel"
        idle
    fi
    wait_for_program
    find_leaving
    find_loaded_by_us
    wait_for_dependencies
    claim_modules
    write_blacklist
    check_room
    check_blacklist
    make_room
    load_in_tree
    # shellcheck disable=SC2086  # names are words
    drop_modules $modules
    remove_firmware "$firmware"
    remove_firmware "$var_firmware"
    export_userspace
    say "the image's own program loads$modules now"
}

# find_live: sets live to a line of each module with its identity, or fails and sets module and why.
find_live() {
    local kind
    live=''
    for module in $modules; do
        is_live "$module" || {
            why="module $module is not live $live_timeout s after the image's own program was started: its log says why"
            return 1
        }
        for kind in srcversion buildID; do
            read_identity "$kind"
            [ -z "$actual" ] || break
        done
        [ -n "$actual" ] || {
            why="module $module shows neither a srcversion nor a build id in $directory, so nothing proves which one it is"
            return 1
        }
        live="$live$module $kind $actual
"
    done
}

# is_proven: what this pod's program has loaded in this boot is recorded on the node.
is_proven() {
    local proven_boot='' proven_pod=''
    read -r proven_boot proven_pod 2>/dev/null <"$live_file"
    [ -n "$proven_pod" ] && [ "$proven_boot $proven_pod" = "$boot_id ${POD_UID:-}" ]
}

# write_live: records what is live for `hold` of the driver pod, in one step.
write_live() {
    { printf '%s %s\n%s' "$boot_id" "${POD_UID:-}" "$live" >"$live_file.new" && mv -f "$live_file.new" "$live_file"; } 2>/dev/null ||
        refuse LoadFailed "${modules##* }" "$live_file cannot be written: is the node's /run read-only?"
}

# prove: the driver pod's containers go on, and only one that has ended has a termination message. So this is another pod.
prove() {
    local waited=0 settled=0 seen=
    trap stop TERM INT
    if [ "$kernel" != "$built_for" ]; then
        write_verdict WrongKernel ",\"builtFor\":$(quoted "$built_for")"
        return
    fi
    say "waiting for$modules"
    while [ "$settled" -lt "$settle_seconds" ]; do
        if ! find_live; then
            [ "$waited" -lt "$live_timeout" ] || refuse LoadFailed "$module" "$why"
            settled=0 seen=''
        elif [ "$live" = "$seen" ]; then
            settled=$((settled + 1))
        else
            settled=0 seen=$live
        fi
        # The trap ends a wait, and not a sleep.
        sleep 1 &
        wait
        waited=$((waited + 1))
    done
    read_uptime
    for module in $modules; do
        ! is_of_other "$module" || refuse ModuleConflict "$module" "$(conflict_over "$module")"
    done
    for word in $device_nodes; do
        wait_for_device_node "$word"
    done
    for module in $modules; do
        write_owner "$module" live
    done
    # From now on `hold` judges by it.
    write_live
    write_loaded
}

stop() {
    kill "${!:-}" 2>/dev/null
    exit 0
}

# hold_needed: what `load` has loaded of the needed modules is checked as well.
hold_needed() {
    local name
    [ -z "$is_vendors" ] && [ "$loaded_by" = ours ] || return 0
    add_needed
    for name in $needed; do
        is_ours "$name" || drop_needed "$name"
    done
}

# A device that is rebound is away for a moment: only what was seen twice is reported.
hold() {
    local seen=
    trap stop TERM INT
    [ "$loaded_by" = ours ] || until is_proven; do
        sleep "$hold_seconds" >/dev/null 2>&1 &
        wait
    done
    if [ "$kernel" = "$built_for" ]; then
        hold_needed
        say "holding$modules on $kernel until SIGTERM"
    else
        say "the node runs $kernel, this image is for $built_for: $wrong_kernel"
    fi
    while :; do
        if [ "$kernel" != "$built_for" ] || check_driver; then
            seen=
        elif [ "$seen" = "$lost $module" ]; then
            write_verdict "$lost" ",\"module\":$(quoted "$module"),\"message\":$(quoted "$why")"
            say "$lost: $why"
            exit 1
        else
            seen="$lost $module"
        fi
        # Everything else happens in the trap: a flag could be set between the test of it and the wait.
        sleep "$hold_seconds" >/dev/null 2>&1 &
        wait
    done
}

unready() {
    say "$*"
    exit 1
}

probe() {
    [ "$loaded_by" = ours ] || is_proven || unready "the image's own program has not loaded its modules yet"
    [ "$kernel" = "$built_for" ] || unready "the node runs $kernel, this image is for $built_for"
    check_driver || unready "$why"
}

# quote_all NAME...: prints them as the inside of a JSON list.
quote_all() {
    local comma=''
    for word; do
        printf '%s%s' "$comma" "$(quoted "$word")"
        comma=,
    done
}

# finish RESULT MODULE MESSAGE REMAINING: writes the verdict of unload, and exits.
finish() {
    # shellcheck disable=SC2086  # names are words
    write_verdict "$1" ",\"module\":$(quoted "$2"),\"message\":$(quoted "$3"),\"remaining\":[$(quote_all $4)]"
    say "$1: $3"
    [ "$1" = Unloaded ]
    exit
}

unload_driver() {
    local entry name going='' left='' message="no module of the driver was loaded"
    read_node
    [ -n "${DRIVER:-}" ] && [ -n "${BOOT_ID:-}" ] || {
        say "unload needs DRIVER and BOOT_ID in its environment"
        exit 2
    }
    if [ "$boot_id" != "$BOOT_ID" ]; then
        message="the node has rebooted since: none of its modules is loaded"
    else
        find_along
        # Also where a module is in use: the next driver may replace it later.
        drop_modules
        for entry in ${UNLOAD:-}; do
            name=${entry%%:*}
            is_identity "$name" "${entry#*:}" || continue
            if is_of_other "$name" && [ "$state" = live ]; then
                message="module $name was loaded on this node by driver ${owner%%.*}/${owner#*.}, and is not unloaded"
            else
                going="$going $name"
            fi
        done
        # What stands on these goes before them.
        find_riders "$going"
        for name in $along; do
            # shellcheck disable=SC2086  # names are words
            if is_among "$name" $riders; then going="$going $name"; else left="$left $name"; fi
        done
    fi
    for name in $going; do
        # shellcheck disable=SC2086  # names are words
        ! is_in_use "$name" $going || finish InUse "$name" "module $name is in use ($(usage_of "$name"))" "$going"
    done
    if [ -n "$going" ]; then
        # shellcheck disable=SC2086  # names are words
        unload_all $going || finish InUse "${remaining##* }" "$reason" "$remaining"
        message="unloaded$going"
    fi
    # Another driver may use what the image had besides: it stays.
    for name in $left; do
        # shellcheck disable=SC2086  # names are words
        if is_in_use "$name" || ! unload "$name"; then
            message="$message; module $name, which came with it, stays: it is in use ($(usage_of "$name"))"
        else
            message="$message, $name"
        fi
    done
    if [ "$boot_id" = "$BOOT_ID" ]; then
        remove_export "$run_folder/$this_driver"
        remove_export "$host_root/run/nvidia/driver"
    fi
    set +f
    for name in "$host_firmware"/updates/*; do
        remove_firmware "$name"
    done
    set -f
    remove_firmware "$var_firmware"
    rm -f "$blacklist_file" "$rebuild_file" "$parameters_file" "$live_file" "$needed_file" 2>/dev/null
    # Other drivers' records keep it.
    rmdir "$owners" 2>/dev/null
    [ ! -e "$blacklist_file" ] || finish FilesLeft "" "$blacklist_file cannot be removed: is the node's /etc/modprobe.d read-only?" ""
    finish Unloaded "" "$message" ""
}

case ${1:-} in
load | prepare | prove | hold | probe)
    find_data
    case $1 in load | prepare | prove) [ -z "$is_vendors" ] || write_names ;; esac
    read_driver
    "$1"
    ;;
unload)
    unload_driver
    ;;
*)
    say "usage: $0 load|prepare|prove|hold|probe|unload"
    exit 2
    ;;
esac
# What follows in the loader's image is no script.
exit
