#!/usr/bin/env bash
# record.sh [NAME...]: records captures of this folder, or all that it can, between two network namespaces: the server at
# 198.18.5.1, the client at 198.18.5.2. It needs root and the Debian packages iproute2 tcpdump openssl python3, samba smbclient
# (smb), inn2 (nntp), libusrsctp-examples (sctp), osmo-ggsn (gtp), and c104 (iec104). Keys are made for the recording and thrown away.
# Each run gives other bytes: tests must not depend on single packets. record-vm.sh has those that need another kernel.
set -euo pipefail
cd "$(dirname "$0")"
work=$(mktemp -d)
chmod 755 "$work"
server=mr-rec-server client=mr-rec-client
cleanup() {
	for ns in $server $client; do
		ip netns pids $ns 2>/dev/null | xargs -r kill 2>/dev/null || true
		ip netns del $ns 2>/dev/null || true
	done
	rm -rf "$work"
}
trap cleanup EXIT

ip netns add $server
ip netns add $client
ip -n $server link add eth0 type veth peer name eth0 netns $client
n=1
for ns in $server $client; do
	ip netns exec $ns sysctl -qw net.ipv6.conf.all.disable_ipv6=1 # no neighbour discovery in the captures
	ip -n $ns link set lo up
	ip -n $ns address add 198.18.5.$n/24 dev eth0
	ip -n $ns link set eth0 up
	n=2
done
serve() { timeout 60 ip netns exec $server "$@" >>"$work/server.log" 2>&1 </dev/null & }
use() { timeout 20 ip netns exec $client "$@" >>"$work/client.log" 2>&1; }

# record NAME FILTER PACKETS: captures in the client's namespace; stop ends it.
record() {
	: >"$work/tcpdump.log"
	ip netns exec $client tcpdump -i eth0 -c "$3" -U --immediate-mode -Z root -w "$1.pcap" "$2" 2>"$work/tcpdump.log" &
	recorder=$!
	until grep -q 'listening on' "$work/tcpdump.log"; do sleep 0.05; done
}
stop() {
	sleep 0.3
	kill $recorder 2>/dev/null || true
	wait $recorder 2>/dev/null || true
}
# listening tcp|udp PORT: waits for a server.
listening() {
	for _ in $(seq 100); do
		[ -n "$(ip netns exec $server ss -Hanl --"$1" "sport = :$2")" ] && return
		sleep 0.1
	done
	echo "nothing listens at $1 port $2" >&2
	return 1
}

# Samba: versions 1, 2.1, 3.1.1 and 3.1.1 with encryption, and version 1 in a session of NetBIOS.
smb() {
	mkdir -p "$work"/smb/{private,lock,state,cache,pid,rpc,log,share}
	printf 'one file\n' >"$work/smb/share/file.txt"
	cat >"$work/smb.conf" <<-CONF
		[global]
		netbios name = server
		server min protocol = NT1
		private dir = $work/smb/private
		lock directory = $work/smb/lock
		state directory = $work/smb/state
		cache directory = $work/smb/cache
		pid directory = $work/smb/pid
		ncalrpc dir = $work/smb/rpc
		log file = $work/smb/log/smbd
		load printers = no
		[share]
		path = $work/smb/share
		read only = no
	CONF
	printf 'secret\nsecret\n' | smbpasswd -c "$work/smb.conf" -s -a root >/dev/null
	serve smbd -F --no-process-group -s "$work/smb.conf"
	listening tcp 445
	listening tcp 139
	record smb 'tcp and (port 445 or port 139)' 300
	local with="//198.18.5.1/share -s $work/smb.conf -U root%secret --option=clientminprotocol=NT1"
	use smbclient $with -m NT1 -p 445 -c 'ls; get file.txt /dev/null'
	use smbclient $with -m NT1 -p 139 -c 'get file.txt /dev/null'
	use smbclient $with -m SMB2_10 -p 445 -c 'ls; get file.txt /dev/null'
	use smbclient $with -m SMB3_11 -p 445 -c 'get file.txt /dev/null'
	use smbclient $with -m SMB3_11 -p 445 --client-protection=encrypt -c 'get file.txt /dev/null'
	stop
}

# INN's server for readers, with Python's client, plain and STARTTLS.
nntp() {
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=news.example.com \
		-keyout "$work/key.pem" -out "$work/cert.pem" 2>/dev/null
	chown news "$work/key.pem" "$work/cert.pem"
	sed -E -e '/^(tls(cert|key|ca)file|domain|pathhost|server|pathoverview|ovmethod|nnrpdloadlimit):/d' /etc/news/inn.conf >"$work/inn.conf"
	printf '%s\n' 'domain: example.com' 'pathhost: news.example.com' 'server: localhost' "tlscertfile: $work/cert.pem" \
		"tlskeyfile: $work/key.pem" 'ovmethod: tradindexed' 'nnrpdloadlimit: 0' "pathoverview: $work/overview" >>"$work/inn.conf"
	printf 'auth "all" { hosts: "*" default: "<reader>" }\naccess "all" { users: "*" newsgroups: "*" }\n' >"$work/readers.conf"
	chmod 644 "$work/inn.conf" "$work/readers.conf"
	mkdir -p /run/news "$work/overview" && chown news:news /run/news "$work/overview"
	INNCONF=$work/inn.conf setpriv --reuid news --regid news --clear-groups /usr/lib/news/bin/makehistory -x -O # the index of groups
	INNCONF=$work/inn.conf serve /usr/lib/news/bin/nnrpd -D -f -p 119 -c "$work/readers.conf"
	listening tcp 119
	record nntp 'tcp port 119' 200
	cat >"$work/read.py" <<-'PY'
		import nntplib, ssl
		def read(n):
		    n.getcapabilities(); n.list(); n.group('local.test'); n.date(); n.help(); n.quit()
		read(nntplib.NNTP('198.18.5.1', usenetrc=False))
		n = nntplib.NNTP('198.18.5.1', usenetrc=False)
		n.starttls(ssl._create_unverified_context())
		read(n)
	PY
	use python3 -W ignore "$work/read.py"
	stop
}

# usrsctp's echo server and client, over IP.
sctp() {
	serve /usr/lib/usrsctp/echo_server
	sleep 1
	record sctp 'ip proto 132' 60
	(sleep 0.5; echo first; sleep 0.5; echo second; sleep 0.5) | use /usr/lib/usrsctp/client 198.18.5.1 7 || true
	stop
}

# Osmocom's GGSN, with its emulated SGSN: a context (GTP-C) and echoes of ICMP in it (GTP-U), both of version 1.
gtp() {
	cat >"$work/ggsn.cfg" <<-CONF
		ggsn ggsn0
		 gtp state-dir $work
		 gtp bind-ip 198.18.5.1
		 apn internet
		  gtpu-mode tun
		  tun-device tun4
		  type-support v4
		  ip prefix dynamic 198.18.16.0/24
		  ip dns 0 198.18.16.1
		  ip ifconfig 198.18.16.1/24
		  no shutdown
		 default-apn internet
		 no shutdown ggsn
	CONF
	serve osmo-ggsn -c "$work/ggsn.cfg"
	listening udp 2123
	record gtp 'udp port 2123 or udp port 2152' 60
	(cd "$work" && use sgsnemu --listen 198.18.5.2 --remote 198.18.5.1 --statedir "$work" --pidfile "$work/sgsn.pid" \
		--timelimit 8 --pinghost 198.18.16.1 --pingcount 4 --pingrate 2) || true
	stop
}

# c104 of Python's packages, where it is installed: the start of transfer, an interrogation, a clock and values that come by
# themselves.
iec104() {
	cat >"$work/server.py" <<-'PY'
		import c104, time
		server = c104.Server(ip='198.18.5.1', port=2404)
		point = server.add_station(common_address=47).add_point(io_address=11, type=c104.Type.M_ME_NC_1, report_ms=500)
		point.value = 1.5
		server.start()
		time.sleep(12)
	PY
	cat >"$work/client.py" <<-'PY'
		import c104, time
		client = c104.Client()
		connection = client.add_connection(ip='198.18.5.1', port=2404, init=c104.Init.ALL)
		connection.add_station(common_address=47).add_point(io_address=11, type=c104.Type.M_ME_NC_1)
		client.start()
		time.sleep(4)
		client.stop()
	PY
	serve python3 "$work/server.py"
	listening tcp 2404
	record iec104 'tcp port 2404' 80
	use python3 "$work/client.py"
	stop
}

[ $# -gt 0 ] || set -- smb nntp sctp gtp iec104
for name in "$@"; do
	: >"$work/server.log"
	"$name" || { tail -n 20 "$work"/*.log; exit 1; }
	echo "$name: $(stat -c %s "$name.pcap") bytes"
done
