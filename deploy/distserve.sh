#!/bin/sh
# distserve.sh ROOT LOG [PROGRAM]: runs the gateway of ROOT with its own file, without a network and with /proc, and asks it once. For distcheck.sh.
set -e
program=/usr/bin/${3:-millrace}
ip link set lo up
mkdir -p "$1/proc"
: >"$2"
mount -t proc proc "$1/proc"
chroot "$1" "$program" gateway check -c /etc/millrace/gateway.yaml
chroot "$1" "$program" gateway -c /etc/millrace/gateway.yaml 2>"$2" &
pid=$!
trap 'kill $pid 2>/dev/null || true' EXIT
until grep -q 'listener' "$2"; do
	kill -0 $pid || { cat "$2"; exit 1; }
	sleep 0.1
done
chroot "$1" "$program" get http://127.0.0.1:8080/ | grep -q 'The gateway runs'
kill $pid
wait $pid || { cat "$2"; exit 1; }
