#!/bin/bash
# vhost.sh MILLRACE: a Linux guest in QEMU (emulated) downloads from a gateway by curl, and sends through `millrace forward` by iperf3, over
# two vhost-user ports. Needs root, for a veth pair in a namespace of its own.
set -euo pipefail
millrace=$(readlink -f "$1")
cd "$(dirname "$0")/../../.."
deps=.deps/vm
MODULES="virtio_pci virtio_net"
TOOLS="/usr/bin/curl /usr/bin/iperf3 /usr/sbin/ip"

if [ ! -e $deps/kernel ]; then
	mkdir -p $deps/package
	package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: //p')
	(cd $deps/package && apt-get download -qq "$package" && dpkg -x "$package"_*.deb . && rm -f ./*.deb)
	cp $deps/package/boot/vmlinuz-* $deps/kernel
fi

work=$(mktemp -d)
space=mr-vhost-$$
cleanup() {
	for job in $(jobs -p); do kill "$job" 2>/dev/null || true; done
	wait 2>/dev/null || true
	ip netns del $space 2>/dev/null || true
	ip link del mrvh0 2>/dev/null || true
	rm -rf "$work"
}
trap cleanup EXIT

# The guest's root: busybox, the tools with their libraries, and the modules in the order of their dependencies.
root=$work/root
mkdir -p $root/{bin,proc,sys,dev,tmp,modules,etc}
cp /bin/busybox $root/bin/
for name in sh mount sleep insmod poweroff sha256sum cat ls; do ln -s busybox $root/bin/$name; done
for tool in $TOOLS; do
	for file in $tool $(ldd "$tool" | grep -o '/[^ ]*'); do mkdir -p "$root$(dirname "$file")" && cp -L "$file" "$root$file"; done
done
version=$(ls $deps/package/lib/modules)
depmod -b $deps/package "$version"
number=10
for module in $(for m in $MODULES; do modprobe -d $deps/package -S "$version" --show-depends "$m"; done | awk '/^insmod/ && !seen[$2]++ {print $2}'); do
	cp "$module" $root/modules/$number.ko
	number=$((number + 1))
done
echo 'root:x:0:0:root:/:/bin/sh' >$root/etc/passwd
cat >$root/init <<'INIT'
#!/bin/sh
export PATH=/bin:/usr/bin:/usr/sbin HOME=/
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmp /tmp
for module in /modules/*.ko; do insmod $module; done
ip link set lo up
ip addr add 198.18.0.3/24 dev eth0; ip link set eth0 up
ip addr add 198.18.1.3/24 dev eth1; ip link set eth1 up
echo "== $(cat /proc/version)"
for nic in eth0 eth1; do echo "== $nic features $(cat /sys/class/net/$nic/device/features)"; done
sleep 1
curl -sS -m 60 -o /tmp/big http://198.18.0.1/big; echo "== curl $? $(sha256sum </tmp/big)"
iperf3 -c 198.18.1.1 -n 20M -i 0 | tail -4; echo "== iperf3 send done"
iperf3 -c 198.18.1.1 -n 20M -i 0 -R | tail -4; echo "== iperf3 receive done"
echo "== end"
poweroff -f
INIT
chmod +x $root/init
(cd $root && find . | cpio -o -H newc --quiet | gzip -1) >$work/initrd

# The gateway serves a file on the first port; the second leads to a namespace with an iperf3 server.
mkdir $work/www && head -c 8000000 /dev/urandom >$work/www/big
cat >$work/gw.yaml <<YAML
admin: {socket: $work/admin}
devices: [{name: "vhost:$work/a", addresses: 198.18.0.1/24}]
stack: devices
listeners: [{name: a, address: "198.18.0.1:80", protocol: HTTP}]
routes: [{name: r, rules: [{static: {root: $work/www}}]}]
YAML
ip netns add $space
ip link add mrvh0 type veth peer name eth0 netns $space
ip link set mrvh0 up
ip -n $space addr add 198.18.1.1/24 dev eth0
ip -n $space link set eth0 up
ip netns exec $space ethtool -K eth0 tx off >/dev/null # its checksums are complete on the wire
ip netns exec $space iperf3 -s >/dev/null 2>&1 &
"$millrace" gateway -c $work/gw.yaml >$work/gateway.log 2>&1 &
"$millrace" forward vhost:$work/b mrvh0 >$work/forward.log 2>&1 &
for socket in a b; do
	for _ in $(seq 100); do [ -S $work/$socket ] && break; sleep 0.1; done
done

# vectors=0: QEMU 7.2 without KVM crashes when a vhost device has MSI-X.
timeout "${LIMIT:-300}" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -m 512 -smp 1 -nodefaults -no-user-config -no-reboot -display none \
	-object memory-backend-memfd,id=mem,size=512M,share=on -machine memory-backend=mem \
	-chardev socket,id=c0,path=$work/a -netdev vhost-user,id=n0,chardev=c0 -device virtio-net-pci,netdev=n0,mac=02:00:00:00:00:03,romfile=,vectors=0 \
	-chardev socket,id=c1,path=$work/b -netdev vhost-user,id=n1,chardev=c1 -device "virtio-net-pci,netdev=n1,mac=02:00:00:00:01:03,romfile=,vectors=0${PACKED:+,packed=on}" \
	-serial stdio -kernel $deps/kernel -initrd $work/initrd -append 'console=ttyS0 quiet panic=-1 net.ifnames=0' </dev/null 2>&1 |
	tr -d '\r' | tee $work/log | sed -n '/^== /,$p; /qemu/p'
sed -n '/msg=device/p' $work/gateway.log
kill -INT %3 2>/dev/null && wait %3 || true
tail -12 $work/forward.log
want=$(sha256sum <$work/www/big)
grep -qF "== curl 0 $want" $work/log || { echo "curl did not get the file"; cat $work/gateway.log; exit 1; }
[ "$(grep -c 'sender\|receiver' $work/log)" -ge 4 ] || { echo "iperf3 failed"; exit 1; }
grep -q '^== end' $work/log
