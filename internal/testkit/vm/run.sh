#!/bin/bash
# run.sh FOLDER COMMAND: boots Debian's kernel in QEMU, as emulated x86-64, with FOLDER as /t, and runs COMMAND there as root.
#
# For tests of what the kernel of this machine does not allow, as extension programs of eBPF. The kernel is a Debian package,
# which is fetched into .deps and not installed; the root file system is busybox, the programs of TOOLS, and the files of FILES.
set -euo pipefail
cd "$(dirname "$0")/../../.."
. internal/testkit/vm/guest.sh
TOOLS="${TOOLS-/usr/sbin/ip /usr/sbin/tc /usr/sbin/bpftool /usr/sbin/xdp-loader /usr/sbin/xdp-filter /usr/sbin/xdpdump}"
MODULES="${MODULES:-veth cls_bpf sch_ingress act_bpf}"
FILES="${FILES:-}"

guest_kernel .deps/vm linux-image-cloud-amd64
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
guest_root "$work/root" ls cat mkdir rm ln sleep grep kill find true timeout seq
guest_copy "$root" $TOOLS $FILES
mkdir -p "$root/usr/lib/x86_64-linux-gnu" && cp -r /usr/lib/x86_64-linux-gnu/bpf "$root/usr/lib/x86_64-linux-gnu/" 2>/dev/null || true
guest_modules $MODULES
mkdir "$root/t" && cp -a "$1/." "$root/t/" && printf '%s\n' "$2" >"$root/t/.command"
for program in $(find "$root/t" \( -name test -o -name '*.so' \) -type f); do # the libraries that they link
	for file in $(ldd "$program" 2>/dev/null | grep -o '/[^ ]*'); do mkdir -p "$root$(dirname "$file")" && cp -L "$file" "$root$file"; done
done
guest_init <<'INIT'
mount -t tmpfs run /run; mkdir -p /run/netns
cd /t; echo "== $(cat /proc/version)"; sh /t/.command; echo "== exit $?"
poweroff -f
INIT
guest_pack "$work/initrd"
timeout "${LIMIT:-600}" "${qemu[@]}" -m 1500 -smp 2 -serial stdio -initrd "$work/initrd" </dev/null |
	tr -d '\r' | sed -n '/^== /,$p' | tee "$work/log"
grep -q '^== exit 0' "$work/log"
