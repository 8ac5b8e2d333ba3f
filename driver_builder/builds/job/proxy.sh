# shellcheck shell=sh
# Writes the user name and password of a proxy into its address, for a build and for a kernel discovery: as a URL has them,
# each byte as %XX. buildah gives these variables to every RUN, and writes them to no image.
escaped() {
    printf %s "$(cat "/proxy/$1")" | od -An -v -tx1 | tr -d ' \n' | sed 's/../%&/g'
}
if [ -e /proxy/password ]; then
    user="$(escaped username):$(escaped password)"
    [ -z "${HTTP_PROXY:-}" ] || export HTTP_PROXY="${HTTP_PROXY%%://*}://$user@${HTTP_PROXY#*://}"
    [ -z "${HTTPS_PROXY:-}" ] || export HTTPS_PROXY="${HTTPS_PROXY%%://*}://$user@${HTTPS_PROXY#*://}"
    [ -z "${HTTP_PROXY:-}" ] || export http_proxy="$HTTP_PROXY"
    [ -z "${HTTPS_PROXY:-}" ] || export https_proxy="$HTTPS_PROXY"
fi
