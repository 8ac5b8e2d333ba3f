FROM debian:trixie-slim AS headers
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
ENV DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8

# No package is pinned: the archives keep the newest version only. The lists stay: no layer of this stage is shipped.
# A build that is cut off is thrown away, so dpkg need not wait for the disk after every file.
# hadolint ignore=DL3008,DL3009
RUN echo force-unsafe-io >/etc/dpkg/dpkg.cfg.d/driverwright; \
    apt-get update -q -o APT::Update::Error-Mode=any -o Acquire::Languages=none || { \
        echo "driverwright: apt-get update failed: an archive of the base image cannot be reached"; exit 67; }; \
    apt-get install -q --yes --no-install-recommends binutils bzip2 ca-certificates \
        curl e2fsprogs fdisk gcc kmod libc6-dev libelf1 make patch xz-utils || { \
        echo "driverwright: compiler and tools cannot be installed from the archives of the base image"; exit 67; }; \
    apt-get clean

# The script of dkms alone: the rest of its package makes packages, and has hooks that would build by themselves.
# Without a key: dkms makes one of its own otherwise, another one in every build.
WORKDIR /dkms
RUN apt-get download -q dkms || { \
        echo "driverwright: package dkms cannot be downloaded from the archives of the base image"; exit 67; }; \
    dpkg-deb -x ./dkms_*.deb .; \
    cp usr/sbin/dkms /usr/sbin/; \
    mkdir /etc/dkms /var/lib/dkms; \
    echo "mok_signing_key=/dev/null/none" >/etc/dkms/framework.conf

# Flatcar has no packages. The disk image of the developer container has the kernel's build folder, with the
# Module.symvers of the release; it is read without mounting it, from its one partition, which is ext4.
RUN image=flatcar_developer_container.bin; \
    folder="/usr/lib/modules/6.6.65-flatcar"; \
    is_reached=; \
    try() { \
        echo "driverwright: looking for $image of 4081.2.1 in $1"; \
        code=0; \
        curl -fsSL --retry 2 -o /tmp/image.bz2 "${1%/}/amd64-usr/4081.2.1/$image.bz2" || code=$?; \
        case "$code" in 0 | 22) is_reached=yes ;; esac; \
        return "$code"; \
    }; \
    try https://stable.release.flatcar-linux.net || \
    try https://beta.release.flatcar-linux.net || \
    try https://alpha.release.flatcar-linux.net || \
    try https://lts.release.flatcar-linux.net || { \
        [ -n "$is_reached" ] || { echo "driverwright: Flatcar's release servers cannot be reached"; exit 67; }; \
        echo "driverwright: $image of 4081.2.1 is in none of these places"; exit 64; }; \
    bunzip2 </tmp/image.bz2 | dd of=/tmp/image bs=1M conv=sparse status=none; \
    start=$(sfdisk --dump /tmp/image | sed -n "s/.*start= *\([0-9]*\),.*name=\"ROOT\".*/\1/p"); \
    mkdir -p "${folder%/*}"; \
    debugfs -R "rdump $folder ${folder%/*}" "/tmp/image?offset=$((start * 512))"; \
    rm /tmp/image /tmp/image.bz2; \
    [ -e /lib/modules ] || ln -s ../usr/lib/modules /lib/modules; \
    [ -f "$folder/build/Module.symvers" ] || { \
        echo "driverwright: $image of 4081.2.1 has no $folder/build/Module.symvers"; exit 64; }; \
    ln -s "$folder/build" /kernel; \
    mkdir /facts; \
    cp /kernel/Module.symvers /facts/; \
    gcc --version | sed -n 1p >/facts/compiler

# How the kernel was configured, in the words of an empty module: what modules of another kernel are compared with. Where
# none can be built this fact is missing, and the driver's own build says why.
RUN mkdir /magic; \
    echo "obj-m := magic.o" >/magic/Makefile; \
    printf "%s\n" "#include <linux/module.h>" "MODULE_LICENSE(\"GPL\");" >/magic/magic.c; \
    { make -C "/kernel" M=/magic CONFIG_DEBUG_INFO_BTF_MODULES= modules && \
        modinfo -F vermagic /magic/magic.ko >/facts/vermagic; } >/magic/log 2>&1 || rm -f /facts/vermagic

FROM headers AS build
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]

COPY source/ /source/

# The headers are where an installed kernel has them, and uname names their release: Makefiles, scripts and dkms look
# there and ask it, and would get the kernel of the machine that builds. Before 3.0 dkms has a PATH without /usr/local/bin,
# since 3.0 it does not make its own folder.
RUN folder="/lib/modules/6.6.65-flatcar"; \
    mkdir -p "$folder" /var/lib/dkms; \
    [ -e "$folder/build" ] || ln -sfn "/kernel" "$folder/build"; \
    [ -e "$folder/source" ] || ln -sfn "/kernel" "$folder/source"; \
    printf "%s\n" "#!/bin/sh" "/bin/uname \"\$@\" | sed \"s/$(/bin/uname -r)/6.6.65-flatcar/\"" \
        >/usr/local/bin/uname; \
    chmod 0755 /usr/local/bin/uname; \
    sed -i "s,^PATH=\"/,PATH=\"/usr/local/bin:/," /usr/sbin/dkms

# Without the BTF of modules: nothing needs it, and it takes pahole where the headers bring a vmlinux. A tree with a
# dkms.conf is built as that says; make finds our variables in MAKEFLAGS, as if they stood in its call.
# A package may have dkms install its modules under other names (DEST_MODULE_NAME: nvidia-current-open.ko is nvidia):
# they get their own back, by which kernel, modprobe and the driver's spec know them.
# Releases of dkms differ: before 3.0 there is no BUILD_EXCLUSIVE_CONFIG, before 3.0.11 no limit of kernels, so both are
# compared here; "not for this kernel" is 9 in older ones, then 77; and headers given by an option are cleaned before 3.0.
# 3.2 does not build what has BUILD_DEPENDS unless dkms has installed those, which is for a machine with all its drivers:
# here another driver is an image of its own, and symbols that nobody has are noticed by modpost.
RUN headers="/kernel"; \
    driver="driverwright/edu 1.0.0"; \
    if [ ! -e /source/dkms.conf ]; then \
        make -C "$headers" -j "$(nproc)" M=/source \
            CONFIG_DEBUG_INFO_BTF_MODULES= modules || { \
            echo "driverwright: $driver does not compile for 6.6.65-flatcar"; exit 65; }; \
        ln -s /source /built; \
        exit 0; \
    fi; \
    refuse() { echo "driverwright: the dkms.conf of $driver $1"; exit 68; }; \
    ! grep -q "$(printf "\r")" /source/dkms.conf || refuse "has line ends of Windows (CR LF): save it with LF"; \
    number=$(sed -n "s/^ *PACKAGE_VERSION=//p" /source/dkms.conf | tail -n 1 | tr -d "\"'" | cut -c -100); \
    case "${number%% *}" in *"#"*) \
        refuse "has a placeholder where PACKAGE_VERSION is, ${number%% *}: write the version itself" ;; \
    esac; \
    export MAKEFLAGS="-- CONFIG_DEBUG_INFO_BTF_MODULES="; \
    printf "\nunset BUILD_DEPENDS\n" >>/source/dkms.conf; \
    dkms add -k "6.6.65-flatcar" /source || case "$number" in \
        *"\$("*|*"\`"*) refuse "has dkms compute PACKAGE_VERSION, which fails in a build: write the version for $number" ;; \
        *) refuse "is not accepted by dkms" ;; \
    esac; \
    is_excluded() ( \
        set +eu; \
        arch=$(uname -m); \
        export arch kernelver="6.6.65-flatcar" kernel_source_dir="$headers"; \
        . /source/dkms.conf >/dev/null 2>&1; \
        is_sorted() { printf "%s\n" "$@" | sort -V -C; }; \
        is_sorted "$BUILD_EXCLUSIVE_KERNEL_MIN" "$kernelver" "${BUILD_EXCLUSIVE_KERNEL_MAX:-$kernelver}" || exit 0; \
        for option in $BUILD_EXCLUSIVE_CONFIG; do \
            case "$option" in \
                !*) ! grep -q "^${option#!}=[my]" "$headers/.config" || exit 0 ;; \
                *) grep -q "^$option=[my]" "$headers/.config" || exit 0 ;; \
            esac; \
        done; \
        exit 1; \
    ); \
    tree=$(find /var/lib/dkms -mindepth 2 -maxdepth 2 -type d); \
    code=0; \
    if is_excluded; then code=77; else dkms build -k "6.6.65-flatcar" "${tree#/var/lib/dkms/}" || code=$?; fi; \
    find "$tree" -name make.log -exec cat {} +; \
    case "$code" in 9 | 77) \
        wanted=$({ grep -E -o "(BUILD_EXCLUSIVE_[A-Z_]*|OBSOLETE_BY)=.*" /source/dkms.conf || true; } | paste -s -d " " | cut -c -300); \
        echo "driverwright: $driver is not for 6.6.65-flatcar, says its dkms.conf: $wanted"; exit 69 ;; \
    esac; \
    [ "$code" = 0 ] || { \
        echo "driverwright: $driver does not compile for 6.6.65-flatcar, says dkms ($code)"; exit 65; }; \
    find "$tree" -name "*.ko.xz" -exec unxz {} + -o -name "*.ko.gz" -exec gunzip {} + -o -name "*.ko.zst" -exec unzstd -q --rm {} +; \
    for file in "$tree/6.6.65-flatcar"/*/module/*.ko; do \
        name=$(modinfo -F name "$file" 2>/dev/null || true); \
        known=$(basename "$file" .ko | tr - _); \
        [ -z "$name" ] || [ "$known" = "$name" ] || mv "$file" "${file%/*}/$name.ko"; \
    done; \
    ln -s "$tree/6.6.65-flatcar"/*/module /built

# The wanted modules, and those of the driver's own that they depend on. Names are words, to be split.
# hadolint ignore=SC2001,SC2046
RUN folder="/out/lib/modules/6.6.65-flatcar"; \
    mkdir -p "$folder/updates"; \
    wanted="edudrv"; \
    set -- $wanted; \
    while [ "$#" -gt 0 ]; do \
        module=$1; \
        shift; \
        file=$(find /built/ -name "$(echo "$module" | sed "s/[-_]/[-_]/g").ko" | sort | sed -n 1p); \
        if [ -z "$file" ]; then \
            case " $wanted " in *" $module "*) \
                echo "driverwright: make built no $module.ko, it built:" $(find /built/ -name "*.ko"); exit 66 ;; \
            esac; \
            continue; \
        fi; \
        target=$folder/updates/${file##*/}; \
        [ ! -e "$target" ] || continue; \
        strip --strip-debug -o "$target" "$file"; \
        set -- "$@" $(modinfo -F depends "$file" | tr "," " "); \
    done; \
    touch "$folder/modules.order" "$folder/modules.builtin" "$folder/modules.builtin.modinfo"; \
    depmod -b /out "6.6.65-flatcar"

WORKDIR /out/driver
COPY modules ./
# hadolint ignore=SC2001
RUN chmod 0644 modules; \
    echo "6.6.65-flatcar" >kernel; \
    touch identities depends needs-device; \
    while read -r module _; do \
        file=$(find /out/lib/modules -name "$(echo "$module" | sed "s/[-_]/[-_]/g").ko"); \
        srcversion=$(modinfo -F srcversion "$file"); \
        build_id=$(readelf -n "$file" 2>/dev/null | sed -n "s/^ *Build ID: //p"); \
        if [ -n "$srcversion" ]; then \
            echo "$module srcversion $srcversion" >>identities; \
        elif [ -n "$build_id" ]; then \
            echo "$module buildID $build_id" >>identities; \
        fi; \
        echo "$module $(modinfo -F depends "$file" | tr "," " ")" >>depends; \
        if modinfo -F alias "$file" | grep -E "^(bcma|pci|ssb|usb|virtio|vmbus|xen):" >/dev/null; then \
            echo "$module" >>needs-device; \
        fi; \
    done <modules; \
    find /out -exec touch -h -d @0 {} +

RUN [ ! -d /facts ] || cp -R /facts/. /driverwright-facts/

FROM scratch
COPY --from=build /out/ /
