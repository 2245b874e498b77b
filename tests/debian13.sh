#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a Debian 13 in a folder and runs a command of this checkout in it: by default the two of the README.
#
#   tests/debian13.sh FOLDER [COMMAND ...]      e.g. tests/debian13.sh /var/tmp/debian13 ./dev demo
#
# Needs root and debootstrap. FOLDER is made if it is not there (half a gigabyte, more with the packages that ./dev installs), and used again
# if it is; /qk in it is a copy of what git has here. MIRROR names another mirror. APT and pip settings of this machine and
# the certificates that it trusts are copied.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ $# -lt 1 ] || [ "$1" = --help ]; then sed -n '3,9s/^# \{0,1\}//p' "$0"; exit 2; fi
folder=$(realpath -m "$1")
shift
command=("$@")
[ ${#command[@]} -gt 0 ] || command=(sh -c './dev demo && ./dev test')
[ "$(id -u)" -eq 0 ] || { echo "debian13.sh: debootstrap and chroot need root" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "debian13.sh: install debootstrap first" >&2; exit 2; }

if [ ! -e "$folder/etc/debian_version" ]; then
    debootstrap --variant=minbase --include=ca-certificates,git trixie "$folder" "${MIRROR:-http://deb.debian.org/debian}"
    cp -a /etc/apt/apt.conf.d/. "$folder/etc/apt/apt.conf.d/"
    for file in /etc/pip.conf /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt; do if [ -e "$file" ]; then cp -L "$file" "$folder$file"; fi; done
fi
mkdir -p "$folder/qk"
find "$folder/qk" -mindepth 1 -maxdepth 1 ! -name build -exec rm -r {} +  # what an earlier checkout had
git ls-files -z | tar --create --null --files-from=- | tar --extract --directory "$folder/qk"
# The mounts are this command's own and go with it.
exec unshare --mount /bin/bash -euc '
    for at in proc dev sys; do mount --rbind "/$at" "$0/$at"; done
    if [ -d ../shared ]; then mkdir -p "$0/shared"; mount --bind ../shared "$0/shared"; fi
    exec chroot "$0" /bin/bash -c "cd /qk && exec \"\$@\"" qk "$@"' "$folder" "${command[@]}"
