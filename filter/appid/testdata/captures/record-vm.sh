#!/usr/bin/env bash
# record-vm.sh: records the captures that need modules of a kernel, between two virtual machines with Debian's kernel: rocev2
# (rdma_rxe, which gives to the wire only what is for another machine, with rping and perftest) and geneve (the kernel's
# device). Ends are as in record.sh, and the capture is the server's. It needs the Debian packages qemu-system-x86
# busybox-static cpio iproute2 tcpdump iputils-ping perftest rdmacm-utils ibverbs-providers rdma-core, and no KVM. The kernel's
# package is fetched into a temporary folder and not installed. LOG names a folder for the machines' consoles.
set -euo pipefail
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -n "${KERNEL_PACKAGE:-}" ]; then # a folder with the package's files
	package=$KERNEL_PACKAGE
else
	package=$work/package
	mkdir "$package"
	name=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: //p')
	(cd "$package" && apt-get download -qq "$name" && dpkg -x "$name"_*.deb .)
fi

root=$work/root
mkdir -p "$root"/{bin,proc,sys,dev,tmp,run,etc,modules,usr/lib/x86_64-linux-gnu}
cp /bin/busybox "$root/bin/"
for name in sh mount cat mkdir sed sleep insmod poweroff kill base64 seq timeout; do ln -s busybox "$root/bin/$name"; done
for tool in ip rdma tcpdump ping ib_send_bw rping; do
	for path in /usr/sbin /usr/bin /sbin /bin; do [ -x $path/$tool ] && break; done
	for file in $path/$tool $(ldd $path/$tool | grep -o '/[^ ]*'); do
		mkdir -p "$root$(dirname "$file")" && cp -L "$file" "$root$file"
	done
done
cp -L /usr/lib/x86_64-linux-gnu/libgcc_s.so.1 "$root/usr/lib/x86_64-linux-gnu/" # which threads end with
provider=$(ls /usr/lib/x86_64-linux-gnu/libibverbs/librxe-*.so)
mkdir -p "$root/usr/lib/x86_64-linux-gnu/libibverbs" "$root/etc/libibverbs.d"
cp -L "$provider" "$root$provider"
cp /etc/libibverbs.d/rxe.driver "$root/etc/libibverbs.d/"
for file in $(ldd "$provider" | grep -o '/[^ ]*'); do mkdir -p "$root$(dirname "$file")" && cp -L "$file" "$root$file"; done
# Modules in the order that they depend on each other.
n=10
for module in crypto/crc32_generic net/ipv4/udp_tunnel net/ipv6/ip6_udp_tunnel drivers/net/ethernet/intel/e1000/e1000 drivers/net/geneve \
	fs/configfs/configfs drivers/infiniband/core/{ib_core,iw_cm,ib_cm,ib_uverbs,rdma_cm,rdma_ucm} \
	drivers/infiniband/sw/rxe/rdma_rxe net/packet/af_packet; do
	file=$(echo "$package"/lib/modules/*/kernel/$module.ko)
	[ ! -e "$file" ] || cp "$file" "$root/modules/$n-$(basename "$file")"
	n=$((n + 1))
done
printf 'root:x:0:0:root:/:/bin/sh\ntcpdump:x:1:1::/:/bin/sh\n' >"$root/etc/passwd"
cat >"$root/record" <<'GUEST'
# The shell of busybox prefers its own applets.
ip() { /usr/sbin/ip "$@"; }
end=$1
echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6
ip link set eth0 up
ip address add 198.18.5.$end/24 dev eth0
ip link add gnv type geneve id 7 remote 198.18.5.$((3 - end))
ip address add 198.18.6.$end/24 dev gnv
ip link set gnv up
rdma link add rxe0 type rxe netdev eth0
rdma link
if [ $end = 2 ]; then
	for i in $(seq 200); do /usr/bin/ping -c 1 -W 1 198.18.5.1 && break; done
	sleep 12
	/usr/bin/ping -c 3 -i 0.3 198.18.6.1
	timeout 30 rping -c -a 198.18.5.1 -C 3 -S 100 -v
	timeout 40 ib_send_bw -d rxe0 -x 1 -n 5 -s 200 -F 198.18.5.1
	exit
fi
for i in $(seq 200); do /usr/bin/ping -c 1 -W 1 198.18.5.2 && break; done
tcpdump -i eth0 -U --immediate-mode -Z root -w /tmp/geneve.pcap -c 12 'udp port 6081' &
tcpdump -i eth0 -U --immediate-mode -Z root -w /tmp/rocev2.pcap -c 80 'udp port 4791' &
timeout 100 rping -s -a 198.18.5.1 -C 3 -S 100 &
timeout 100 ib_send_bw -d rxe0 -x 1 -n 5 -s 200 -F &
wait %3 %4
sleep 2
for name in geneve rocev2; do echo "== capture $name"; base64 /tmp/$name.pcap; echo "== end"; done
GUEST
cat >"$root/init" <<'INIT'
#!/bin/sh
export PATH=/bin:/usr/bin:/usr/sbin:/sbin HOME=/
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp; mount -t tmpfs run /run; mkdir -p /run/netns
for module in /modules/*.ko; do insmod "$module" || echo "not loaded: $module"; done
ip link set lo up
sh /record $(sed 's/.*end=//' /proc/cmdline) 2>&1
poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet) | gzip -1 >"$work/initrd"
boot() { # END: the server's machine is 1, the client's 2
	local wire="stream,id=wire,addr.type=unix,addr.path=$work/wire"
	[ "$1" = 1 ] && wire=$wire,server=on || wire=$wire,server=off
	timeout "${LIMIT:-300}" qemu-system-x86_64 -accel tcg -cpu max -m 700 -nodefaults -no-reboot -display none -serial stdio \
		-netdev "$wire" -device "e1000,netdev=wire,mac=02:00:00:00:00:0$1" -kernel "$package"/boot/vmlinuz-* \
		-initrd "$work/initrd" -append "console=ttyS0 quiet panic=-1 end=$1" </dev/null | tr -d '\r' >"$work/log$1" || true
}
boot 1 &
until [ -e "$work/wire" ]; do sleep 0.2; done
boot 2
wait
[ -z "${LOG:-}" ] || cp "$work"/log[12] "$LOG"
for name in geneve rocev2; do
	sed -n "/^== capture $name\$/,/^== end\$/p" "$work/log1" | sed '1d;$d' | base64 -d >"$name.pcap"
	[ -s "$name.pcap" ] || { tail -n 40 "$work"/log[12]; exit 1; }
	echo "$name: $(stat -c %s "$name.pcap") bytes"
done
