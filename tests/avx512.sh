#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# avx512.sh BINARY [ARGS...]: boots Linux in Bochs (a processor with AVX-512 VNNI and VBMI), runs the program there with the arguments, prints what
# it prints as it comes, and exits with its status (124: past the limit, 125: the machine did not boot). For processors without AVX-512.
#   It needs Debian's bochs, bochsbios, vgabios, isolinux, syslinux-common, genisoimage, cpio, busybox-static, and a kernel at $BOCHS_FOLDER/vmlinuz:
#   apt-get download linux-image-cloud-amd64 and what it depends on, dpkg-deb -x, boot/vmlinuz-*.
#   QK_* variables are passed on; PASS="NAME ..." names others. FILES="PATH ..." are files and folders that the program reads (same paths there).
#   LIMIT=seconds of wall time (default 300); CPU=Bochs model (default tigerlake); BOCHS=program; KEEP=1 keeps the folder.
set -u
here=${BOCHS_FOLDER:-$PWD/build/bochs}
[ $# -ge 1 ] || { sed -n '3,8p' "$0"; exit 2; }
binary=$(realpath "$1") || exit 2
name=$(basename "$1"); shift
bochs=${BOCHS:-$here/bochs-fast}; [ -x "$bochs" ] || bochs=$(command -v bochs)
w=$(mktemp -d /tmp/bochs-run.XXXXXX)
follow=
trap '[ -n "$follow" ] && kill $follow 2>/dev/null; [ -n "${KEEP:-}" ] && echo "kept: $w" >&2 || rm -rf "$w"' EXIT
r=$w/root
mkdir -p $r/bin $r/proc $r/dev $r/sys $r/tmp $r/lib64 $r/test $w/iso/isolinux
cp /bin/busybox $r/bin/busybox; for a in sh mount poweroff stty cat; do ln -s busybox $r/bin/$a; done
cp "$binary" "$r/test/$name"
[ -n "${STRIP-1}" ] && strip "$r/test/$name"
ldd "$binary" 2>/dev/null | grep -o '/[^ ]*' | while read -r l; do mkdir -p "$r$(dirname $l)"; cp -L "$l" "$r$l"; done
for f in ${FILES:-}; do mkdir -p "$r$(dirname "$f")"; cp -aL "$f" "$r$(dirname "$f")/"; done
{
    echo '#!/bin/sh'
    echo 'mount -t proc p /proc; mount -t sysfs s /sys; mount -t devtmpfs d /dev 2>/dev/null; exec </dev/null >/dev/ttyS0 2>&1; stty -opost -echo </dev/ttyS0; cd /tmp'
    while IFS= read -r v; do printf 'export %s=%q\n' "$v" "${!v}"; done < <(compgen -e | grep '^QK_'; printf '%s\n' ${PASS:-} | grep .)
    echo 'echo "@@begin"'
    printf '/test/%q' "$name"; for a in "$@"; do printf " '%s'" "${a//\'/\'\\\'\'}"; done; echo
    echo 'echo "@@end $?"; sleep 1 2>/dev/null; poweroff -f'
} > $r/init
chmod 755 $r/init; ln -s busybox $r/bin/sleep
(cd $r && find . | cpio -o -H newc --quiet) > $w/iso/initrd
cp $here/vmlinuz $w/iso/vmlinuz
cp /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/ldlinux.c32 $w/iso/isolinux/
cat > $w/iso/isolinux/isolinux.cfg <<C
default l
prompt 0
label l
 kernel /vmlinuz
 append initrd=/initrd console=ttyS0,115200 ${VERBOSE:-quiet loglevel=1} nokaslr mitigations=off nopti tsc=reliable lpj=4000000 random.trust_cpu=on panic=-1 no_timer_check clearcpuid=pku${CLEAR-,xsavec,xsaves} nohpet rdinit=/init ${APPEND:-}
C
genisoimage -quiet -o $w/boot.iso -b isolinux/isolinux.bin -c isolinux/boot.cat -no-emul-boot -boot-load-size 4 -boot-info-table -iso-level 3 $w/iso 2>$w/iso.log || { cat $w/iso.log; exit 2; }
cat > $w/bochsrc <<C
cpu: model=${CPU:-tigerlake}, count=1, ips=${IPS:-100000000}, reset_on_triple_fault=0, ignore_bad_msrs=1
memory: guest=${MEMORY:-1024}, host=${MEMORY:-1024}
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest
boot: cdrom
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata0-master: type=cdrom, path=$w/boot.iso, status=inserted
display_library: ${DISPLAY_LIB:-nogui}
com1: enabled=1, mode=file, dev=$w/serial
clock: sync=none, time0=utc
log: $w/log
panic: action=fatal
error: action=ignore
info: action=${INFO:-ignore}
C
: > $w/serial
tail -n +1 -s 0.2 -f $w/serial 2>/dev/null | stdbuf -oL tr -d '\r' | stdbuf -oL sed -n ${VERBOSE:+-e p} -e '/^@@end/d' -e '/^@@begin/,$p' | grep --line-buffered -v '^@@' &
follow=$(jobs -p | head -1)
rc=; [ "$bochs" = "$here/bochs-fast" ] || { echo c >$w/rc; rc="-rc $w/rc"; }  # Debian's has the debugger, which waits for "c"
start=$(date +%s)
timeout -s KILL ${LIMIT:-300} "$bochs" -q -f $w/bochsrc $rc </dev/null >$w/stdout 2>&1
status=$?
sleep 0.5
echo "# $(($(date +%s) - start)) s of wall time" >&2
if grep -q '^@@end' $w/serial; then exit "$(grep -a '^@@end' $w/serial | tail -1 | tr -dc 0-9)"; fi
if grep -q '^@@begin' $w/serial; then echo "# not ended: bochs gave $status" >&2; [ $status = 137 ] && exit 124; exit 126; fi
echo "# did not boot: bochs gave $status" >&2; tail -n 5 $w/log $w/stdout >&2
exit 125
