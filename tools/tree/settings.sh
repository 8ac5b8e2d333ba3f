# shellcheck shell=bash
# What a tree needs to know of this machine to reach what it reaches. Sourced by tools/machine and tools/tree/enter.sh.

# What this machine's apt is told about proxies and dates, without which its archive may not be reached.
apt_settings() {
    command -v apt-config >/dev/null || return 0
    apt-config dump Acquire | grep -E '^Acquire::(Check-Valid-Until|Check-Date|https?::Proxy(::[^ ]+)?) "[^"]*";$' || :
}

# Prints the file with the authorities that this machine trusts.
ca_bundle() {
    local file
    for file in "${SSL_CERT_FILE-}" "${PIP_CERT-}" "${REQUESTS_CA_BUNDLE-}" "${CURL_CA_BUNDLE-}" \
        /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem; do
        if [[ -n $file && -s $file ]]; then
            printf '%s\n' "$file"
            return
        fi
    done
    return 1
}
