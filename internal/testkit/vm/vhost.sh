#!/bin/bash
# vhost.sh MILLRACE: a Linux guest in QEMU (emulated) downloads from a gateway by curl, and sends through `millrace forward` by iperf3, over
# two vhost-user ports. Needs root, for a veth pair in a namespace of its own.
set -euo pipefail
millrace=$(readlink -f "$1")
cd "$(dirname "$0")/../../.."
. internal/testkit/vm/guest.sh
guest_kernel .deps/vm linux-image-cloud-amd64

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

guest_root $work/root sleep sha256sum cat ls
guest_copy $root /usr/bin/curl /usr/bin/iperf3 /usr/sbin/ip
guest_modules virtio_pci virtio_net
guest_init <<'INIT'
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
guest_pack $work/initrd

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
timeout "${LIMIT:-300}" "${qemu[@]}" -m 512 -smp 1 \
	-object memory-backend-memfd,id=mem,size=512M,share=on -machine memory-backend=mem \
	-chardev socket,id=c0,path=$work/a -netdev vhost-user,id=n0,chardev=c0 -device virtio-net-pci,netdev=n0,mac=02:00:00:00:00:03,romfile=,vectors=0 \
	-chardev socket,id=c1,path=$work/b -netdev vhost-user,id=n1,chardev=c1 -device "virtio-net-pci,netdev=n1,mac=02:00:00:00:01:03,romfile=,vectors=0${PACKED:+,packed=on}" \
	-serial stdio -initrd $work/initrd </dev/null 2>&1 |
	tr -d '\r' | tee $work/log | sed -n '/^== /,$p; /qemu/p'
sed -n '/msg=device/p' $work/gateway.log
kill -INT %3 2>/dev/null && wait %3 || true
tail -12 $work/forward.log
want=$(sha256sum <$work/www/big)
grep -qF "== curl 0 $want" $work/log || { echo "curl did not get the file"; cat $work/gateway.log; exit 1; }
[ "$(grep -c 'sender\|receiver' $work/log)" -ge 4 ] || { echo "iperf3 failed"; exit 1; }
grep -q '^== end' $work/log
