#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a minimal Debian in a folder and does there, from a clone of what is committed here, what the README tells a user to do.
#
#   tests/debian.sh 12|13 FOLDER [COMMAND ...]      e.g. tests/debian.sh 13 /var/tmp/debian13 ./dev demo
#
# Without COMMAND: ./dev demo, then ./dev test (with ../shared beside the clone, where it lies beside this checkout), then ./dev test again
# on the same build without ../shared. The last lines say what passed. Needs root and debootstrap. FOLDER is made if it is not there (half
# a gigabyte, more with the packages that ./dev installs), and used again if it is; /qk in it is the clone. MIRROR names another mirror. APT
# and pip settings of this machine and the certificates that it trusts are copied. With CCACHE_DIR, compilers run behind ccache with that folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ $# -lt 2 ] || [ "$1" = --help ]; then sed -n '3,10s/^# \{0,1\}//p' "$0"; exit 2; fi
case "$1" in
    12) suite=bookworm ;;
    13) suite=trixie ;;
    *) echo "debian.sh: 12 or 13, not '$1'" >&2; exit 2 ;;
esac
folder=$(realpath -m "$2")
shift 2
[ "$(id -u)" -eq 0 ] || { echo "debian.sh: debootstrap and chroot need root" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "debian.sh: install debootstrap first" >&2; exit 2; }

if [ ! -e "$folder/etc/debian_version" ]; then
    debootstrap --variant=minbase --include=ca-certificates,git "$suite" "$folder" "${MIRROR:-http://deb.debian.org/debian}"
    cp -a /etc/apt/apt.conf.d/. "$folder/etc/apt/apt.conf.d/"
    for file in /etc/pip.conf /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt; do if [ -e "$file" ]; then cp -L "$file" "$folder$file"; fi; done
fi
if [ -d "$folder/qk/.git" ]; then
    git -C "$folder/qk" fetch --quiet "$PWD" HEAD
    git -C "$folder/qk" checkout --quiet --force --detach FETCH_HEAD
else
    git clone --quiet --no-hardlinks "$PWD" "$folder/qk"
fi
if [ -n "${CCACHE_DIR:-}" ]; then
    chroot "$folder" /bin/sh -c 'command -v ccache >/dev/null || { apt-get -qq update && apt-get -qq install -y --no-install-recommends ccache >/dev/null; }'
    export CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_C_COMPILER_LAUNCHER=ccache
fi

# inside SHARED COMMAND ... runs a command in the clone; SHARED is the folder that lies beside it, or "". The mounts go with the command.
inside() {
    unshare --mount /bin/bash -euc '
        folder=$0 shared=$1 cache=$2
        shift 2
        for at in proc dev sys; do mount --rbind "/$at" "$folder/$at"; done
        if [ -n "$shared" ]; then mkdir -p "$folder/shared"; mount --bind "$shared" "$folder/shared"; elif [ -d "$folder/shared" ]; then rmdir "$folder/shared"; fi
        if [ -n "$cache" ]; then mkdir -p "$folder/ccache"; mount --bind "$cache" "$folder/ccache"; export CCACHE_DIR=/ccache; fi
        exec chroot "$folder" /bin/bash -c "cd /qk && exec \"\$@\"" qk "$@"' "$folder" "$1" "${CCACHE_DIR:-}" "${@:2}"
}

shared=$([ ! -d ../shared ] || realpath ../shared)
if [ $# -gt 0 ]; then
    inside "$shared" "$@"
    exit
fi
failed=0
# did TITLE SHARED COMMAND ... runs a command and says how it went.
did() {
    local title=$1 status=0 start=$SECONDS
    shift
    inside "$@" || status=$?
    printf 'debian.sh: %s on a minimal Debian (%s): %s after %d s\n' "$title" "$suite" "$([ $status -eq 0 ] && echo passed || echo "FAILED, status $status")" $((SECONDS - start)) \
        | tee -a "$folder/summary"
    [ $status -eq 0 ] || failed=1
}
: > "$folder/summary"
did "./dev demo" "$shared" ./dev demo
did "./dev test${shared:+ with ../shared}" "$shared" ./dev test
if [ -n "$shared" ]; then did "./dev test without ../shared" "" ./dev test; fi
cat "$folder/summary"
exit $failed
