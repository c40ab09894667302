#!/bin/bash
# run.sh FOLDER COMMAND: boots Debian's kernel in QEMU, as emulated x86-64, with FOLDER as /t, and runs COMMAND there as root.
#
# For tests of what the kernel of this machine does not allow, as extension programs of eBPF. The kernel is a Debian package,
# which is fetched into .deps and not installed; the root file system is busybox and the programs of TOOLS.
set -euo pipefail
cd "$(dirname "$0")/../../.."
TOOLS="/usr/sbin/ip /usr/sbin/tc /usr/sbin/bpftool /usr/sbin/xdp-loader /usr/sbin/xdp-filter /usr/sbin/xdpdump"
MODULES="drivers/net/veth net/sched/cls_bpf net/sched/sch_ingress net/sched/act_bpf"
deps=.deps/vm

if [ ! -e $deps/kernel ]; then
	mkdir -p $deps/package
	package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: //p')
	(cd $deps/package && apt-get download -qq "$package" && dpkg -x "$package"_*.deb . && rm -f ./*.deb)
	cp $deps/package/boot/vmlinuz-* $deps/kernel
fi

if [ ! -e $deps/root.cpio ]; then
	root=$deps/root
	rm -rf $root && mkdir -p $root/{bin,proc,sys,dev,tmp,run,etc,modules,usr/lib/x86_64-linux-gnu}
	cp /bin/busybox $root/bin/
	for name in sh mount ls cat mkdir rm sleep insmod poweroff grep kill find true timeout seq; do ln -s busybox $root/bin/$name; done
	for tool in $TOOLS; do
		[ -e "$tool" ] || { echo "$tool is missing: see VM_PACKAGES in the Makefile"; exit 1; }
		for file in $tool $(ldd "$tool" | grep -o '/[^ ]*'); do
			mkdir -p "$root$(dirname "$file")" && cp -L "$file" "$root$file"
		done
	done
	cp -r /usr/lib/x86_64-linux-gnu/bpf $root/usr/lib/x86_64-linux-gnu/
	for module in $MODULES; do cp $deps/package/lib/modules/*/kernel/$module.ko $root/modules/; done
	echo 'root:x:0:0:root:/:/bin/sh' >$root/etc/passwd
	cat >$root/init <<'INIT'
#!/bin/sh
export PATH=/bin:/usr/bin:/usr/sbin HOME=/
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp; mount -t tmpfs run /run; mkdir -p /run/netns
for module in /modules/*.ko; do insmod "$module"; done
ip link set lo up
cd /t; echo "== $(cat /proc/version)"; sh /t/.command; echo "== exit $?"
poweroff -f
INIT
	chmod +x $root/init
	(cd $root && find . | cpio -o -H newc --quiet) >$deps/root.cpio
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/t" && cp -a "$1/." "$work/t/" && printf '%s\n' "$2" >"$work/t/.command"
for program in $(find "$work/t" -name test -type f); do # the libraries of tests that are linked with some
	for file in $(ldd "$program" 2>/dev/null | grep -o '/[^ ]*'); do mkdir -p "$work$(dirname "$file")" && cp -L "$file" "$work$file"; done
done
(cat $deps/root.cpio; cd "$work" && find ./* ! -name initrd | cpio -o -H newc --quiet) | gzip -1 >"$work/initrd"
timeout "${LIMIT:-600}" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -m 1500 -smp 2 -nodefaults -no-reboot -display none \
	-serial stdio -kernel $deps/kernel -initrd "$work/initrd" -append 'console=ttyS0 quiet panic=-1' </dev/null |
	tr -d '\r' | sed -n '/^== /,$p' | tee "$work/log"
grep -q '^== exit 0' "$work/log"
