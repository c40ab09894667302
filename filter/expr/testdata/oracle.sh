#!/bin/sh
# Runs the oracle where hosts(5), ethers(5) and networks(5) have the names of libpcap's tests: in a mount
# namespace of its own, on copies.
exec unshare -m sh -c '
names=/mnt
mount -t tmpfs none "$names"
cat >"$names/hosts" <<END
127.0.0.1 localhost
10.20.30.40 noeth-ipv4-noipv6.host123.libpcap.test noeth-ipv4-ipv6.host123.libpcap.test
10.20.30.40 eth-ipv4-noipv6.host123.libpcap.test eth-ipv4-ipv6.host123.libpcap.test
fd00:a1b2:c3d4::1020:3040:5060:7080 noeth-noipv4-ipv6.host123.libpcap.test noeth-ipv4-ipv6.host123.libpcap.test
fd00:a1b2:c3d4::1020:3040:5060:7080 eth-noipv4-ipv6.host123.libpcap.test eth-ipv4-ipv6.host123.libpcap.test
192.168.243.1 eth-ipv4x4-noipv6.host357.libpcap.test eth-ipv4x4-ipv6x2.host357.libpcap.test
192.168.242.4 eth-ipv4x4-noipv6.host357.libpcap.test eth-ipv4x4-ipv6x2.host357.libpcap.test
192.168.244.2 eth-ipv4x4-noipv6.host357.libpcap.test eth-ipv4x4-ipv6x2.host357.libpcap.test
192.168.241.3 eth-ipv4x4-noipv6.host357.libpcap.test eth-ipv4x4-ipv6x2.host357.libpcap.test
fd00:a1b2:c3d4::a0b0:c0d0:e0f0:1278 eth-noipv4-ipv6x2.host357.libpcap.test eth-ipv4x4-ipv6x2.host357.libpcap.test
fd00:a1b2:c3d4::a0b0:c0d0:e0f0:3456 eth-noipv4-ipv6x2.host357.libpcap.test eth-ipv4x4-ipv6x2.host357.libpcap.test
END
for h in noipv4-noipv6 noipv4-ipv6 ipv4-noipv6 ipv4-ipv6; do
	echo "aa:00:04:00:14:0e eth-$h.host123.libpcap.test"
done >"$names/ethers"
for h in ipv4x4-noipv6 noipv4-ipv6x2 ipv4x4-ipv6x2; do
	echo "aa:00:04:00:01:08 eth-$h.host357.libpcap.test"
done >>"$names/ethers"
for n in 10.0.0.0 10.20.0.0 10.20.30.0; do
	echo "net-$(echo $n | tr . -).libpcap.test $n"
done >"$names/networks"
mkdir "$names/etc"
cp -a /etc/. "$names/etc/"
rm -f "$names/etc/hosts" "$names/etc/ethers" "$names/etc/networks"
cp "$names/hosts" "$names/ethers" "$names/networks" "$names/etc/"
mount --bind "$names/etc" /etc
exec "$MILLRACE_PCAP_PROGRAM" "$@"' sh "$@"
