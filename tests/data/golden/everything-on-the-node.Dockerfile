FROM debian:bookworm-slim AS headers
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
ENV DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8

# The newest kernels are in the security archive. A base image that does not know it gets it from its own mirror, where
# it lies beside the main archive; when it does not, the base image's own sources have to do. No package is pinned: the
# archives keep the newest version only. The lists stay: no layer of this stage is shipped.
# A build that is cut off is thrown away, so dpkg need not wait for the disk after every file.
# hadolint ignore=DL3008,DL3009
RUN echo force-unsafe-io >/etc/dpkg/dpkg.cfg.d/driverwright; \
    update() { apt-get update -q -o APT::Update::Error-Mode=any -o Acquire::Languages=none; }; \
    update || { echo "driverwright: apt-get update failed: an archive of the base image cannot be reached"; exit 67; }; \
    targets=$(apt-get indextargets --format "\$(RELEASE) \$(REPO_URI)" "Created-By: Packages" "Origin: Debian"); \
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}"); \
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg; \
    signed_by=$([ ! -e "$keyring" ] || echo "[signed-by=$keyring] "); \
    added=/etc/apt/sources.list.d/driverwright-security.list; \
    case "$targets" in *"$codename-security"*) ;; *) \
        echo "$targets" | while read -r release uri; do \
            if [ "$release" = "$codename" ]; then \
                echo "deb $signed_by${uri%/}-security $codename-security main" >"$added"; \
            fi; \
        done; \
        update || { rm -f "$added"; update; } ;; \
    esac; \
    apt-get install -q --yes --no-install-recommends gcc kmod libc6-dev make patch xz-utils || { \
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

# The headers of newer kernels depend on the kernel itself, which would have an initrd made, twice, for nothing.
RUN dpkg-divert --local --rename --add /usr/sbin/update-initramfs; \
    ln -s /bin/true /usr/sbin/update-initramfs

# The lists may be older than the kernel: they are fetched again. Base images do not know the backports of their release,
# which lie beside it; of these nothing else is installed. Superseded kernels leave the archives; the snapshot archive
# has every day of them, and knows when it first saw a file. The package lists name it a little later.
# hadolint ignore=DL3008,DL3009
RUN headers=linux-headers-6.1.0-55-cloud-amd64; \
    is_known() { apt-cache show "$headers" >/dev/null 2>&1; }; \
    update() { apt-get update -q -o APT::Update::Error-Mode=any -o Acquire::Languages=none; }; \
    echo "driverwright: looking for $headers in the archives of debian:bookworm-slim"; \
    update || { echo "driverwright: apt-get update failed: an archive of the base image cannot be reached"; exit 67; }; \
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}"); \
    keys=$(find /etc/apt/trusted.gpg.d/ /usr/share/keyrings/debian-archive-keyring.* -type f 2>/dev/null | \
        sort | paste -s -d ",") || true; \
    try_archive() { \
        added="/etc/apt/sources.list.d/driverwright-$1.list"; \
        echo "driverwright: looking for $headers in $2 $3"; \
        echo "deb [check-valid-until=no signed-by=$keys] $2 $3 main" >"$added"; \
        if update && is_known; then return 0; fi; \
        rm "$added"; \
        return 1; \
    }; \
    try_backports() { \
        uri=$(apt-get indextargets --format "\$(RELEASE) \$(REPO_URI)" "Created-By: Packages" "Origin: Debian" | \
            sed -n "s/^$codename //p" | sed -n 1p) && [ -n "$uri" ] || return 1; \
        try_archive backports "${uri%/}" "$codename-backports"; \
    }; \
    ask_snapshot() { \
        curl -fsSL --retry 1 --connect-timeout 5 --max-time 60 "https://snapshot.debian.org/mr/binary/$headers/$1"; \
    }; \
    try_snapshot() { \
        echo "driverwright: looking for $headers in Debian's history"; \
        apt-get install -q --yes --no-install-recommends ca-certificates curl || return 1; \
        version=$(ask_snapshot "" | grep -o "\"binary_version\": *\"[^\"]*" | sed "s/.*\"//" | sort -V | tail -n 1) || return 1; \
        seen=$(ask_snapshot "$version/binfiles?fileinfo=1" | tr -d "\n" | sed "s/[{}]/\n/g" | \
            sed -n "s/.*\"archive_name\": *\"\([a-z-]*\)\".*\"first_seen\": *\"\([0-9]*\)T\(..\)\(..\).*/\1,\2T\3:\4/p") || return 1; \
        for entry in $seen; do \
            archive=${entry%%,*}; \
            at=$(date -u -d "$(echo "${entry#*,}" | tr T " ") 24 hours" +%Y%m%dT%H%M%SZ); \
            case "$archive" in \
                debian) suites="$codename $codename-updates $codename-proposed-updates $codename-backports" ;; \
                debian-security) suites="$codename-security" ;; \
                *) suites= ;; \
            esac; \
            for suite in $suites; do \
                if try_archive snapshot "https://snapshot.debian.org/archive/$archive/$at" "$suite"; then return 0; fi; \
            done; \
        done; \
        return 1; \
    }; \
    is_known || \
    try_backports || try_snapshot || { \
        echo "driverwright: package $headers is in none of these places"; exit 64; }; \
    apt-get install -q --yes --no-install-recommends "$headers" || { \
        echo "driverwright: package $headers cannot be installed"; exit 67; }; \
    apt-get clean; \
    mkdir /facts; \
    cp "/usr/src/$headers/Module.symvers" /facts/; \
    gcc --version | sed -n 1p >/facts/compiler

# How the kernel was configured, in the words of an empty module: what modules of another kernel are compared with. Where
# none can be built this fact is missing, and the driver's own build says why.
RUN mkdir /magic; \
    echo "obj-m := magic.o" >/magic/Makefile; \
    printf "%s\n" "#include <linux/module.h>" "MODULE_LICENSE(\"GPL\");" >/magic/magic.c; \
    { make -C "/usr/src/linux-headers-6.1.0-55-cloud-amd64" M=/magic CONFIG_DEBUG_INFO_BTF_MODULES= modules && \
        modinfo -F vermagic /magic/magic.ko >/facts/vermagic; } >/magic/log 2>&1 || rm -f /facts/vermagic

FROM headers AS build
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]

COPY --from=registry.example.com/source@sha256:0000000000000000000000000000000000000000000000000000000000000000 /usr/src /source/

# The headers are where an installed kernel has them, and uname names their release: Makefiles, scripts and dkms look
# there and ask it, and would get the kernel of the machine that builds. Before 3.0 dkms has a PATH without /usr/local/bin,
# since 3.0 it does not make its own folder.
RUN folder="/lib/modules/6.1.0-55-cloud-amd64"; \
    mkdir -p "$folder" /var/lib/dkms; \
    [ -e "$folder/build" ] || ln -sfn "/usr/src/linux-headers-6.1.0-55-cloud-amd64" "$folder/build"; \
    [ -e "$folder/source" ] || ln -sfn "/usr/src/linux-headers-6.1.0-55-cloud-amd64" "$folder/source"; \
    printf "%s\n" "#!/bin/sh" "/bin/uname \"\$@\" | sed \"s/$(/bin/uname -r)/6.1.0-55-cloud-amd64/\"" \
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
RUN headers="/usr/src/linux-headers-6.1.0-55-cloud-amd64"; \
    driver="driverwright/edu 1.0.0"; \
    if [ ! -e /source/dkms.conf ]; then \
        make -C "$headers" -j "$(nproc)" M=/source \
            CONFIG_DEBUG_INFO_BTF_MODULES= modules || { \
            echo "driverwright: $driver does not compile for 6.1.0-55-cloud-amd64"; exit 65; }; \
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
    dkms add -k "6.1.0-55-cloud-amd64" /source || case "$number" in \
        *"\$("*|*"\`"*) refuse "has dkms compute PACKAGE_VERSION, which fails in a build: write the version for $number" ;; \
        *) refuse "is not accepted by dkms" ;; \
    esac; \
    is_excluded() ( \
        set +eu; \
        arch=$(uname -m); \
        export arch kernelver="6.1.0-55-cloud-amd64" kernel_source_dir="$headers"; \
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
    if is_excluded; then code=77; else dkms build -k "6.1.0-55-cloud-amd64" "${tree#/var/lib/dkms/}" || code=$?; fi; \
    find "$tree" -name make.log -exec cat {} +; \
    case "$code" in 9 | 77) \
        wanted=$({ grep -E -o "(BUILD_EXCLUSIVE_[A-Z_]*|OBSOLETE_BY)=.*" /source/dkms.conf || true; } | paste -s -d " " | cut -c -300); \
        echo "driverwright: $driver is not for 6.1.0-55-cloud-amd64, says its dkms.conf: $wanted"; exit 69 ;; \
    esac; \
    [ "$code" = 0 ] || { \
        echo "driverwright: $driver does not compile for 6.1.0-55-cloud-amd64, says dkms ($code)"; exit 65; }; \
    find "$tree" -name "*.ko.xz" -exec unxz {} + -o -name "*.ko.gz" -exec gunzip {} + -o -name "*.ko.zst" -exec unzstd -q --rm {} +; \
    for file in "$tree/6.1.0-55-cloud-amd64"/*/module/*.ko; do \
        name=$(modinfo -F name "$file" 2>/dev/null || true); \
        known=$(basename "$file" .ko | tr - _); \
        [ -z "$name" ] || [ "$known" = "$name" ] || mv "$file" "${file%/*}/$name.ko"; \
    done; \
    ln -s "$tree/6.1.0-55-cloud-amd64"/*/module /built

# The wanted modules, and those of the driver's own that they depend on. Names are words, to be split.
# hadolint ignore=SC2001,SC2046
RUN folder="/out/lib/modules/6.1.0-55-cloud-amd64"; \
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
    depmod -b /out "6.1.0-55-cloud-amd64"

# The driver's firmware, which the loader takes to where the node's kernel looks for it.
RUN [ -n "$(find -L "/source/firmware" -type f 2>/dev/null | sed -n 1p)" ] || { \
        echo "driverwright: spec.module.firmwarePath: the build has no files in /source/firmware"; exit 68; }; \
    mkdir /out/firmware; \
    cp -rL "/source/firmware/." /out/firmware/; \
    chmod -R u=rwX,go=rX /out/firmware

WORKDIR /out/driver
COPY modules ./
# hadolint ignore=SC2001
RUN chmod 0644 modules; \
    echo "6.1.0-55-cloud-amd64" >kernel; \
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

FROM scratch
COPY --from=build /out/ /
