#!/bin/sh
# Boots systemd as process 1 of namespaces of its own, over the machine's files: what is written goes to memory. Arguments: a folder, its
# cgroup, and the folder with millrace, its unit, its users and its configuration. The units that are there: those of this script alone.
set -e
dir=$1 cgroup=$2 from=$3
echo 0 >"$cgroup/cgroup.procs"
if [ -z "$inside" ]; then
	exec env inside=1 unshare --pid --mount --cgroup --ipc --uts --fork --kill-child --mount-proc "$0" "$@"
fi
mount --make-rprivate /
mount -t tmpfs tmpfs "$dir"
root=$dir/root
mkdir -p "$dir/upper" "$dir/work" "$root" "$dir/from"
cp "$from"/* "$dir/from"
mount -t overlay overlay -o "lowerdir=/,upperdir=$dir/upper,workdir=$dir/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for d in null zero full random urandom tty; do
	touch "$root/dev/$d"
	mount --bind "/dev/$d" "$root/dev/$d"
done
mkdir "$root/dev/pts" "$root/dev/shm"
ln -s /proc/self/fd "$root/dev/fd"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mkdir -p "$root/run/units" "$root/etc/millrace" "$root/usr/local/bin" "$root/old"
cp "$dir/from/millrace" "$root/usr/local/bin/millrace"
cp "$dir/from/gateway.yaml" "$root/etc/millrace/gateway.yaml"
cp "$dir/from/millrace-gateway.service" "$root/run/units/"
systemd-sysusers --root="$root" "$dir/from/millrace.sysusers"
cd "$root"
pivot_root . old
umount -l /old
mount -t tmpfs -o mode=1777 tmpfs /tmp
for u in sysinit basic sockets timers paths slices multi-user network-online network shutdown umount final; do
	printf '[Unit]\nDescription=%s\nDefaultDependencies=no\n' $u >/run/units/$u.target
done
for u in exit.target systemd-exit.service systemd-journald.service systemd-journald.socket systemd-journald-dev-log.socket; do
	[ ! -e /lib/systemd/system/$u ] || ln -s /lib/systemd/system/$u /run/units/$u
done
printf '[Unit]\nRequires=systemd-journald.service\nWants=millrace-gateway.service\n' >/run/units/boot.target
export container=millrace SYSTEMD_UNIT_PATH=/run/units
exec /lib/systemd/systemd --system --unit=boot.target --log-target=console --show-status=false </dev/null
