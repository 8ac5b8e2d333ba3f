# shellcheck shell=bash
# Which Debian archive a tree is made from: the setting, else this machine's own, else debootstrap's default.
# Sourced by tools/machine.
# shellcheck disable=SC2154

# Sets archive and security_archive to URIs without a slash at the end; an empty one is left to debootstrap.
find_archive() {
    archive='' security_archive=''
    if [[ -n ${DRIVERWRIGHT_DEBIAN_ARCHIVE-} ]]; then
        read -r archive security_archive _ <<<"$DRIVERWRIGHT_DEBIAN_ARCHIVE"
        [[ $archive =~ ^(https?|file)://?[^\ ]+$ ]] ||
            refuse "DRIVERWRIGHT_DEBIAN_ARCHIVE is ${archive@Q}: it takes \"URI [SECURITY-URI]\" with http:, https: or file:"
    else
        local codename uri
        while read -r codename uri; do
            case $codename in
            *-security) security_archive=${security_archive:-$uri} ;;
            *-*) ;;
            *) archive=${archive:-$uri} ;;
            esac
        done < <(machine_archives)
    fi
    archive=${archive%/} security_archive=${security_archive%/}
    if [[ -z $security_archive && $archive == */debian ]]; then
        security_archive=$archive-security
    fi
}

# Prints "CODENAME URI" of each Debian archive that this machine's apt uses.
machine_archives() {
    local found=''
    if command -v apt-get >/dev/null; then
        # Of lists that apt has verified; in many container images there are none.
        # shellcheck disable=SC2016
        found=$(apt-get indextargets --format '$(ORIGIN)|$(TRUSTED)|$(CODENAME) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
            sed -nE 's/^Debian\|yes\|([a-z-]+ https?:.*)$/\1/p') || found=''
    fi
    printf '%s\n' "${found:-$(archives_of_sources /etc/apt)}"
}

# The same from the text of apt's sources in a folder. The suites' names and the component main tell Debian from others; a wrong
# archive is refused by its signature later.
archives_of_sources() {
    local suites='(bullseye|bookworm|trixie|forky|duke|sid|stable|testing|unstable|oldstable)(-security|/updates)?'
    {
        { cat "$1/sources.list" "$1"/sources.list.d/*.list 2>/dev/null || :; } |
            sed -nE 's/^deb +(\[[^]]*\] +)?(https?:[^ ]+) +([^ ]+) +(.*)$/\3 \2 \4/p'
        { cat "$1"/sources.list.d/*.sources 2>/dev/null || :; } | awk '
            function end(  i, j) {
                for (i in uris) for (j in suites) print suites[j], uris[i], components
                split("", uris); split("", suites); components = ""
            }
            tolower($1) == "uris:" { sub(/^[^:]*: */, ""); split($0, uris) }
            tolower($1) == "suites:" { sub(/^[^:]*: */, ""); split($0, suites) }
            tolower($1) == "components:" { sub(/^[^:]*: */, ""); components = $0 }
            /^[ \t]*$/ { end() }
            END { end() }'
    } | sed -nE "s,^$suites (https?:[^ ]+) (.* )?main( .*)?\$,\1\2 \3,p" | sed 's,/updates ,-security ,'
}

# Prints the sources of apt for a suite: the one-line format, which every apt reads.
sources_text() {
    local main=$1 security=$2 signed='[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]'
    printf 'deb %s %s %s main\n' "$signed" "$main" "$suite"
    case $suite in
    sid | unstable | testing | forky | duke) return ;;
    esac
    printf 'deb %s %s %s main\n' "$signed" "$main" "$suite-updates"
    printf 'deb %s %s %s main\n' "$signed" "$security" "$suite-security"
}
