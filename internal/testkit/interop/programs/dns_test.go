package programs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// dnsPrograms are name servers, which answer by the control messages of UDP, and a client of AI_ADDRCONFIG.
func dnsPrograms() []program {
	return []program{
		{"dnsmasq", []string{"dnsmasq", "--version"}, "a record by UDP, to dig of the peer and of its own host, at all its addresses, and by TCP at 127.0.0.1: at others it looks for the address in netlink, which is the kernel's", runDnsmasq},
		{"unbound", []string{"unbound", "-V"}, "local data by UDP and TCP, IPv4 and IPv6, to dig of the peer and of its own host", runUnbound},
		{"NSD", []string{"nsd", "-v"}, "a zone by UDP and TCP, IPv4 and IPv6, to dig of the peer and of its own host; answers of 2 kB", runNSD},
		{"h2load", []string{"h2load", "--version"}, "2000 requests to nginx of the peer by HTTP/1.1 and HTTP/2, by IPv4 and IPv6", runH2load},
	}
}

const dnsmasqPort = "5301"

// digs asks a name server for a name, from both sides and by both transports.
func (b *bed) digs(t *testing.T, server *process, port, name, want string, addrs ...string) string {
	t.Helper()
	b.opens(t, server, atoi(t, port))
	n := 0
	for _, from := range []*place{b.peer, b.host} {
		for _, at := range addrs {
			if from == b.peer && at == "127.0.0.1" {
				continue
			}
			for _, by := range []string{"+notcp", "+tcp"} {
				if by == "+tcp" && port == dnsmasqPort && at != "127.0.0.1" {
					continue
				}
				out, code := from.try(t, patience, "dig", "@"+at, "-p", port, by, "+time=3", "+tries=2", "+short", name, "TXT")
				if code != 0 || !strings.Contains(out, want) {
					t.Errorf("dig %s of %s, port %s: code %d, %s; the server: %s", by, at, port, code, last(out, 300), last(server.log.String(), 1000))
				}
				n++
			}
		}
	}
	return fmt.Sprintf("%d answers", n)
}

func atoi(t *testing.T, s string) (n int) {
	t.Helper()
	_, err := fmt.Sscan(s, &n)
	must(t, err)
	return n
}

func runDnsmasq(t *testing.T, b *bed) string {
	server := b.host.start(t, "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--user=root", "--pid-file="+filepath.Join(b.dir, "dnsmasq.pid"), "--port="+dnsmasqPort,
		"--txt-record=name.test,right", "--log-facility=-")
	defer server.stop(t)
	return b.digs(t, server, dnsmasqPort, "name.test", "right", hostAddr, hostAddr6, "127.0.0.1")
}

const unboundConf = `server:
  do-daemonize: no
  username: ""
  chroot: ""
  directory: "DIR"
  pidfile: "DIR/unbound.pid"
  use-syslog: no
  logfile: ""
  interface: 198.18.20.2@5302
  interface: 2001:db8:20::2@5302
  interface: 127.0.0.1@5302
  access-control: 0.0.0.0/0 allow
  access-control: ::/0 allow
  module-config: "iterator"
  local-zone: "test." static
  local-data: 'name.test. TXT "right"'
remote-control:
  control-enable: no
`

func runUnbound(t *testing.T, b *bed) string {
	conf := filepath.Join(b.dir, "unbound.conf")
	must(t, os.WriteFile(conf, []byte(strings.ReplaceAll(unboundConf, "DIR", b.dir)), 0o644))
	server := b.host.start(t, "unbound", "-d", "-c", conf)
	defer server.stop(t)
	return b.digs(t, server, "5302", "name.test", "right", hostAddr, hostAddr6, "127.0.0.1")
}

const nsdConf = `server:
  ip-address: 198.18.20.2
  ip-address: 2001:db8:20::2
  ip-address: 127.0.0.1
  port: 5303
  username: ""
  zonesdir: "DIR"
  database: ""
  pidfile: "DIR/nsd.pid"
  xfrdfile: "DIR/xfrd.state"
  zonelistfile: "DIR/zone.list"
remote-control:
  control-enable: no
zone:
  name: test
  zonefile: test.zone
`

func runNSD(t *testing.T, b *bed) string {
	conf := filepath.Join(b.dir, "nsd.conf")
	zone := "$TTL 60\n@ SOA a b 1 60 60 60 60\n@ NS name\nname A 192.0.2.1\nname TXT \"right\"\n" + "big TXT \"right\"" + strings.Repeat(" \""+strings.Repeat("y", 250)+"\"", 6) + "\n"
	must(t, os.WriteFile(conf, []byte(strings.ReplaceAll(nsdConf, "DIR", b.dir)), 0o644), os.WriteFile(filepath.Join(b.dir, "test.zone"), []byte(zone), 0o644))
	server := b.host.start(t, "nsd", "-d", "-c", conf)
	defer server.stop(t)
	small := b.digs(t, server, "5303", "name.test", "right", hostAddr, hostAddr6, "127.0.0.1")
	b.digs(t, server, "5303", "big.test", strings.Repeat("y", 250), hostAddr, hostAddr6)
	return small
}

const h2loadConf = `daemon off; worker_processes 1; pid DIR/h2pid; error_log stderr; events { worker_connections 256; }
http { access_log off; client_body_temp_path DIR/hb; proxy_temp_path DIR/hp; fastcgi_temp_path DIR/hf; uwsgi_temp_path DIR/hu; scgi_temp_path DIR/hs;
 server { listen 5304; listen [::]:5304; location / { return 200 'right'; } }
 server { listen 5305 http2; listen [::]:5305 http2; location / { return 200 'right'; } } }
`

// succeeded is the line of h2load's summary.
var succeeded = regexp.MustCompile(`(\d+) succeeded, 0 failed`)

func runH2load(t *testing.T, b *bed) string {
	conf := filepath.Join(b.dir, "h2load.conf")
	must(t, os.WriteFile(conf, []byte(strings.ReplaceAll(h2loadConf, "DIR", b.dir)), 0o644))
	server := b.peer.start(t, "nginx", "-c", conf)
	defer server.stop(t)
	b.answers(t, server, b.peer, peerAddr+":5304")
	b.answers(t, server, b.peer, peerAddr+":5305")
	requests := 0
	for _, url := range []string{"http://" + peerAddr + ":5304/", "http://[" + peerAddr6 + "]:5304/", "http://" + peerAddr + ":5305/", "http://[" + peerAddr6 + "]:5305/"} {
		args := []string{"h2load", "-n", "500", "-c", "10"}
		if strings.Contains(url, "5304") {
			args = append(args, "--h1")
		}
		out := b.host.run(t, append(args, url)...)
		if m := succeeded.FindStringSubmatch(out); m == nil || m[1] != "500" {
			t.Errorf("%s: %s", url, last(out, 2000))
		}
		requests += 500
	}
	return fmt.Sprintf("%d requests", requests)
}
