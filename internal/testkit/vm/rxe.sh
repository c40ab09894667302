#!/bin/bash
# rxe.sh TEST [ARGUMENTS]: boots Debian's kernel in QEMU (emulated) with Linux's rdma_rxe on a TAP device, and runs the test program TEST of
# package rdma beside it, with MILLRACE_RXE set. Both are in a network namespace of their own. Needs root, and no KVM.
#
# The kernel is a Debian package, which is fetched into .deps and not installed: the one for clouds has no rdma_rxe. The guest runs the
# pingpong programs and testdata/verbs.py in loops, and any command that comes to TCP port 18540. CAPTURE names a file for its packets.
set -euo pipefail
test=$(readlink -f "$1")
shift
cd "$(dirname "$0")/../../.."
. internal/testkit/vm/guest.sh
TOOLS="/usr/sbin/ip /usr/bin/rdma /usr/bin/ibv_rc_pingpong /usr/bin/ibv_uc_pingpong /usr/bin/ibv_ud_pingpong /usr/bin/rping /usr/bin/ucmatose /usr/bin/udaddy
	/usr/bin/ib_write_bw /usr/bin/ib_send_lat /usr/bin/python3.11 /bin/kmod"
guest_kernel .deps/vm/full linux-image-amd64

work=$(mktemp -d)
space=mr-rxe-$$
cleanup() {
	for job in $(jobs -p); do kill "$job" 2>/dev/null || true; done
	wait 2>/dev/null || true
	ip netns del $space 2>/dev/null || true
	rm -rf "$work"
}
trap cleanup EXIT

# The guest's root: busybox, the tools and Python's RDMA library with what they link, and the modules in the order of their dependencies.
lib=/usr/lib/x86_64-linux-gnu
guest_root $work/root sleep cat ls nc ln echo grep kill timeout seq sha256sum
mkdir -p $root/{etc/libibverbs.d,usr/lib/python3/dist-packages,usr/bin,lib}
guest_copy $root $TOOLS $lib/libgcc_s.so.1 $lib/libibverbs/librxe-rdmav*.so /usr/lib/python3/dist-packages/pyverbs/*.so /usr/lib/python3.11/lib-dynload/*.so
cp /etc/libibverbs.d/rxe.driver $root/etc/libibverbs.d/
cp /usr/lib/python3/dist-packages/pyverbs/*.py $root/usr/lib/python3/dist-packages/pyverbs/ 2>/dev/null || true
(cd / && find usr/lib/python3.11 -type d \( -name test -o -name idlelib -o -name __pycache__ -o -name ensurepip -o -name lib2to3 -o -name distutils \) -prune -o \
	-type f ! -name '*.so' -print | cpio -pdm --quiet $root)
ln -s python3.11 $root/usr/bin/python3
cp rdma/testdata/verbs.py $root/
guest_modules virtio_pci virtio_net crc32_generic ib_uverbs rdma_ucm rdma_rxe
guest_init <<'INIT'
ulimit -l unlimited
ip addr add 198.18.0.2/24 dev eth0; ip link set eth0 up
rdma link add rxe0 type rxe netdev eth0
loop() { while :; do "$@" >/dev/null 2>&1 || sleep 0.2; done; }
loop ibv_rc_pingpong -g 1 -e -n 20 -p 18515 &
loop ibv_uc_pingpong -g 1 -e -n 20 -p 18516 &
loop ibv_ud_pingpong -g 1 -e -n 20 -p 18517 -s 1024 &
loop ibv_rc_pingpong -g 1 -e -n 20 -p 18520 -s 70000 -m 1024 &
python3 /verbs.py >/tmp/verbs 2>&1 &
nc -ll -p 18540 -e sh &
echo "== $(cat /proc/version)"
ls /sys/class/infiniband /dev/infiniband
rdma link
for _ in $(seq 100); do grep -q READY /tmp/verbs && break; sleep 0.2; done
cat /tmp/verbs
echo "== ready"
while :; do sleep 1000; done
INIT
guest_pack $work/initrd

ip netns add $space
ip -n $space link set lo up
ip netns exec $space ip tuntap add dev eth0 mode tap
ip -n $space addr add 198.18.0.1/24 dev eth0
ip -n $space link set eth0 up
ip netns exec $space "${qemu[@]}" -m 512 -smp 1 \
	-netdev tap,id=n0,ifname=eth0,script=no,downscript=no -device virtio-net-pci,netdev=n0,mac=02:00:00:00:00:02,romfile= \
	-serial "file:$work/log" -initrd $work/initrd </dev/null &
for _ in $(seq 600); do
	grep -q '^== ready' "$work/log" 2>/dev/null && break
	sleep 0.2
done
grep -q '^== ready' "$work/log" || { echo "the guest does not boot"; cat "$work/log"; exit 1; }
tr -d '\r' <"$work/log" | sed -n '/^== /,$p'
cd rdma
[ -z "${CAPTURE:-}" ] || { ip netns exec $space tcpdump -i eth0 -U -w "$CAPTURE" udp port 4791 & sleep 1; }
ip netns exec $space env MILLRACE_RXE=eth0,198.18.0.1,198.18.0.2 "$test" "$@" || { tail -20 "$work/log"; exit 1; }
