#!/usr/bin/env bash
# Records the captures of testdata/: traffic of common programs and of the Linux kernel between two
# network namespaces, and what ../derivepcaps makes of it: tunnels, tags, other link types. It needs root, Go,
# Python, and the Debian packages iproute2 ethtool tcpdump tshark curl openssl iperf3 iputils-ping
# netcat-openbsd. Addresses are those of RFC 2544 and RFC 3849; keys and certificates are made for the
# recording and thrown away. Each run gives other bytes: tests must not depend on single packets.
set -euo pipefail
cd "$(dirname "$0")/testdata"
work=$(mktemp -d)
a=mr-rec-a b=mr-rec-b
cleanup() {
	for ns in $a $b; do
		ip netns pids $ns 2>/dev/null | xargs -r kill 2>/dev/null || true
		ip netns del $ns 2>/dev/null || true
	done
	rm -rf "$work"
}
trap cleanup EXIT
rm -f ./*.pcap ./*.pcapng

ip netns add $a
ip netns add $b
ip -n $a link add eth0 type veth peer name eth0 netns $b
for ns in $a $b; do ip -n $ns link set lo up; ip netns exec $ns sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.eth0.accept_dad=0; done
ina() { ip netns exec $a "$@"; }
inb() { ip netns exec $b "$@"; }

# record FILE INTERFACE PACKETS [OPTION...]: starts a capture in namespace a; stop ends it.
record() {
	local file=$1 dev=$2 count=$3
	shift 3
	ina tcpdump -i "$dev" -c "$count" -U --immediate-mode -Z root -w "$file" "$@" 2>"$work/tcpdump.log" &
	recorder=$!
	until grep -q 'listening on' "$work/tcpdump.log"; do sleep 0.05; done
}
stop() {
	sleep 0.3
	kill $recorder 2>/dev/null || true
	wait $recorder 2>/dev/null || true
}
addresses() { # DEVICE NET: 198.18.NET.1 and .2, 2001:db8:NET::1 and ::2
	local n=1 ns
	for ns in $a $b; do
		ip -n $ns link set "$1" up
		ip -n $ns address add 198.18.$2.$n/24 dev "$1"
		ip -n $ns address add 2001:db8:$2::$n/64 dev "$1" nodad
		n=2
	done
}
pings() { # NET
	ina ping -q -c 3 -i 0.1 -s 600 198.18.$1.2 >/dev/null
	ina ping -q -c 3 -i 0.1 -s 600 2001:db8:$1::2 >/dev/null
}

# The start of an interface: neighbour discovery, MLD with its hop-by-hop header, ARP, echoes.
ip -n $a link set eth0 up
record start.pcap eth0 60
addresses eth0 1
sleep 1.5
pings 1
stop

# Fragments of IPv4 and IPv6; unreachable ports; expired hop limits.
record fragments.pcap eth0 60
ina ping -q -c 2 -i 0.1 -s 4000 198.18.1.2 >/dev/null
ina ping -q -c 2 -i 0.1 -s 4000 2001:db8:1::2 >/dev/null
stop
record errors.pcap eth0 40
for to in 198.18.1.2 2001:db8:1::2; do
	echo nothing listens | ina nc -u -w 1 $to 9 || true
	ina nc -z -w 1 $to 9 || true
done
inb sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
ip -n $a route add 198.19.0.0/24 via 198.18.1.2
ip -n $b route add 198.19.0.0/24 via 198.18.1.1
ina ping -q -c 2 -i 0.2 -t 3 198.19.0.9 >/dev/null || true
stop

# Services of namespace b.
for i in $(seq 200); do echo "line $i of a file that is served over HTTP"; done >"$work/index.html"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$work/key" -out "$work/cert" \
	-days 1 -subj /CN=server.example -addext subjectAltName=DNS:server.example 2>/dev/null
mkdir "$work/www" && mv "$work/index.html" "$work/cert" "$work/key" "$work/www"
cd "$work/www"
inb python3 -m http.server --bind :: 80 >/dev/null 2>&1 &
inb openssl s_server -accept 443 -key key -cert cert -WWW -quiet >/dev/null 2>&1 &
cd - >/dev/null
inb iperf3 -s >/dev/null 2>&1 &
for port in 80 443 5201; do until inb nc -z 198.18.1.2 $port; do sleep 0.1; done; done
names=(--resolve server.example:80:198.18.1.2 --resolve server.example:443:198.18.1.2)
six=(--resolve server.example:80:[2001:db8:1::2] --resolve server.example:443:[2001:db8:1::2])
fetch() { ina curl -s --cacert "$work/www/cert" "$@" >/dev/null; }

# TCP with segmentation offload: large packets, checksums left to a device that is not there.
record http-offload.pcap eth0 200
fetch "${names[@]}" http://server.example/index.html
fetch "${six[@]}" http://server.example/index.html http://server.example/none
fetch -H 'User-Agent: record/1' -d name=value "${names[@]}" http://server.example/form
stop
for ns in $a $b; do ip netns exec $ns ethtool -K eth0 tx off rx off tso off gso off gro off >/dev/null 2>&1 || true; done
record http.pcap eth0 200
fetch "${names[@]}" http://server.example/index.html
fetch "${six[@]}" http://server.example/index.html
stop
record tls.pcap eth0 200
fetch "${names[@]}" https://server.example/index.html
fetch --tls-max 1.2 "${six[@]}" https://server.example/index.html
stop

# Bulk through a queue that overflows: SACK, duplicates, retransmissions.
inb tc qdisc add dev eth0 root tbf rate 20mbit burst 4kb limit 5kb
record bulk-loss.pcap eth0 700
ina iperf3 -c 198.18.1.2 -R -n 60K -M 300 >/dev/null
ina iperf3 -c 2001:db8:1::2 -R -n 60K -M 300 >/dev/null
stop
inb tc qdisc del dev eth0 root
record udp.pcap eth0 80
ina iperf3 -c 198.18.1.2 -u -b 1M -l 1200 -n 24K >/dev/null
ina iperf3 -c 2001:db8:1::2 -u -b 1M -l 400 -n 8K >/dev/null
stop

# DNS: a server that gives every name the same address, and a client.
cat >"$work/dns.py" <<'PY'
import socket, struct, sys
QUESTION = lambda name, kind: b"".join(bytes([len(l)]) + l for l in name.encode().split(b".")) + b"\0" + struct.pack("!HH", kind, 1)
if sys.argv[1] == "serve":
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.bind(("::", 53))
    while True:
        q, peer = s.recvfrom(512)
        answer = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 60, 4) + bytes([198, 18, 1, 2])
        s.sendto(q[:2] + struct.pack("!HHHHH", 0x8180, 1, 1, 0, 0) + q[12:] + answer, peer)
for n, to in enumerate(["198.18.1.2", "2001:db8:1::2"] * 4):
    s = socket.socket(socket.AF_INET6 if ":" in to else socket.AF_INET, socket.SOCK_DGRAM)
    s.sendto(struct.pack("!HHHHHH", 1000 + n, 0x100, 1, 0, 0, 0) + QUESTION(f"host{n}.example.net", 1), (to, 53))
    s.recv(512)
PY
inb python3 "$work/dns.py" serve >/dev/null 2>&1 &
sleep 0.5
record dns.pcap eth0 40
ina python3 "$work/dns.py" ask
stop

# Large packets.
for ns in $a $b; do ip -n $ns link set eth0 mtu 9000; done
record jumbo.pcap eth0 160
ina iperf3 -c 198.18.1.2 -l 4096 -n 240K >/dev/null
ina iperf3 -c 2001:db8:1::2 -l 4096 -n 240K >/dev/null
stop
for ns in $a $b; do ip -n $ns link set eth0 mtu 1500; done

# A tunnel.
for n in 1 2; do
	ns=mr-rec-$(cut -c $n <<<ab)
	ip -n "$ns" link add t0 type vxlan id 5 local 198.18.1.$n remote 198.18.1.$((3 - n)) dstport 4789
done
record vxlan.pcap eth0 120
addresses t0 10
pings 10
fetch --max-time 5 http://198.18.10.2/index.html
stop
for ns in $a $b; do ip -n $ns link del t0; done

# Other link types and file formats.
record any.pcap any 60 -y LINUX_SLL
pings 1
fetch "${names[@]}" http://server.example/index.html
stop
record any2.pcap any 60 -y LINUX_SLL2
pings 1
stop
record nanoseconds.pcap eth0 30 --time-stamp-precision=nano
pings 1
stop
editcap -F pcapng http.pcap http.pcapng
editcap -F pcapng -s 70 tls.pcap cut.pcapng
mergecap -F pcapng -w two-links.pcapng nanoseconds.pcap any.pcap # two interfaces in one file
go run ../../derivepcaps start.pcap http.pcap fragments.pcap

for f in *.pcap *.pcapng; do
	echo "$f: $(tcpdump --count -nr "$f" 2>&1 | tail -n 1)"
done
