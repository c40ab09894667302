package control_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/wire"
)

// Two gateways with a role, a client and two backends on one link, a bridge, and a link between the gateways:
//
//	client .21   gate .11   gate2 .12   b1 .31   b2 .32      198.18.0.0/24, 2001:db8::/64
//	gate sync 198.18.9.1 ---- sync 198.18.9.2 gate2
//
//	services 198.18.0.100, 2001:db8::100; SNAT 198.18.0.110, 2001:db8::110

const rolesConfig = `
devices: [{name: eth0, driver: %s}]
snat: [198.18.0.110, "2001:db8::110"]
tunnel: {source: [198.18.5.0/24, "2001:db8:5::/64"]}
admin: {socket: "%s"}
sync: {listen: "198.18.9.%d:3780", peer: "198.18.9.%d:3780", key: "%064x", index: %d, role: {lease: %s%s}}
services:
  - {name: nat, address: &vip0 [198.18.0.100:8100, "[2001:db8::100]:8100"], backends: [{name: b1, address: ["198.18.0.31:8100", "[2001:db8::31]:8100"]}, {name: b2, address: ["198.18.0.32:8100", "[2001:db8::32]:8100"]}]}
  - {name: ipip, mode: ipip, address: [198.18.0.100:8120, "[2001:db8::100]:8120"], backends: &direct [{name: b1, address: 198.18.0.31}, {name: b2, address: 198.18.0.32}]}
  - {name: gue, mode: gue, address: [198.18.0.100:8140, "[2001:db8::100]:8140"], backends: *direct}
  - {name: l2, mode: l2, address: [198.18.0.100:8160, "[2001:db8::100]:8160"], backends: *direct}
`

// roleAddresses are those that one of both answers for.
var roleAddresses = []string{"198.18.0.100", "198.18.0.110", "2001:db8::100", "2001:db8::110"}

// roles is the network above.
type roles struct {
	*takeover
	sw    *testnet.Namespace
	lease time.Duration
}

// newRoles lays the network out. Neither gateway runs.
func newRoles(t *testing.T, prefix, driver string, lease time.Duration, more [2]string) *roles {
	t.Helper()
	testnet.Program(t, "ip", "tcpdump")
	n := testnet.For(t, prefix)
	dir := t.TempDir()
	s := &site{t: t, queues: 1, admin: true, client: n.Namespace("client"), gate: n.Namespace("gate"), file: filepath.Join(dir, "first.yaml")}
	s.backends = [2]*testnet.Namespace{n.Namespace("b1"), n.Namespace("b2")}
	second := &site{t: t, queues: 1, admin: true, client: s.client, gate: n.Namespace("gate2"), backends: s.backends, file: filepath.Join(dir, "second.yaml")}
	r := &roles{takeover: &takeover{&pair{s, second}}, sw: n.Namespace("sw"), lease: lease}
	for _, args := range [][]string{{"link", "add", "br0", "type", "bridge", "mcast_snooping", "0"}, {"link", "set", "br0", "up"}} {
		_, err := r.sw.Run("ip", args...)
		s.must(err)
	}
	for i, host := range []*testnet.Namespace{s.client, s.gate, second.gate, s.backends[0], s.backends[1]} {
		port, at := fmt.Sprintf("p%d", i), []int{21, 11, 12, 31, 32}[i]
		s.must(host.Sysctl("net.ipv6.conf.default.accept_dad", "0"))
		s.must(n.Link(host, "eth0", r.sw, port))
		s.must(host.NoOffload("eth0"))
		_, err := r.sw.Run("ip", "link", "set", port, "master", "br0", "up")
		s.must(err)
		s.must(host.Up("eth0", fmt.Sprintf("198.18.0.%d/24", at), fmt.Sprintf("2001:db8::%d/64", at)))
	}
	s.must(n.Link(s.gate, "sync", second.gate, "sync"))
	s.must(s.gate.Up("sync", "198.18.9.1/24"))
	s.must(second.gate.Up("sync", "198.18.9.2/24"))
	for i, ns := range s.backends {
		for _, key := range []string{"rp_filter=0", "arp_ignore=1", "arp_announce=2"} { // docs/modes.md
			name, value, _ := strings.Cut(key, "=")
			s.must(ns.Sysctl("net.ipv4.conf.all."+name, value))
			s.must(ns.Sysctl("net.ipv4.conf.default."+name, value))
		}
		s.decap[i] = receiveTunnels(t, ns, 6080)
		s.must(ns.Up("lo", "198.18.0.100/32", "2001:db8::100/128"))
		r.servePacedAt(i, ":8100", ":8120", ":8140", ":8160")
	}
	for i, g := range []*site{s, second} {
		text := fmt.Sprintf(rolesConfig, driver, filepath.Join(dir, fmt.Sprintf("gw%d.sock", i)), 1+i, 2-i, 7, i, lease, more[i])
		s.must(os.WriteFile(g.file, []byte(text), 0o600))
	}
	return r
}

// states returns how often each gateway has entered a state, by its log.
func (g *site) entered(state string) int {
	return strings.Count(g.log.String(), "msg=role state="+state+" ")
}

// awaitRole waits until a gateway has entered a state so many times.
func (r *roles) awaitRole(g *site, state string, times int) {
	r.t.Helper()
	for end := time.Now().Add(30 * time.Second); g.entered(state) < times; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("the gateway is not %s: %s", state, g.log.String())
		}
	}
}

// startBoth starts both gateways, the first as the active one, and waits until they are in step.
func (r *roles) startBoth() {
	r.t.Helper()
	r.start()
	r.awaitRole(r.site, "active", 1)
	r.second.start()
	r.awaitRole(r.second, "standby", 1)
	r.awaitSynced()
	r.awaitRoleServed()
}

func (r *roles) awaitRoleServed() {
	r.t.Helper()
	for _, host := range []string{"198.18.0.100", "[2001:db8::100]"} {
		for _, port := range []int{8100, 8120, 8140, 8160} {
			var err error
			for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				if err = r.knock("tcp", fmt.Sprintf("%s:%d", host, port), time.Second); err == nil {
					break
				}
			}
			r.must(err)
		}
	}
}

// clientSocket returns a packet socket of the client that sends only, with its device.
func (r *roles) clientSocket() (fd, index int, mac wire.MAC) {
	r.t.Helper()
	r.must(r.client.Do(func() error {
		in, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		index, mac = in.Index, wire.MAC(in.HardwareAddr)
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	}))
	return fd, index, mac
}

// judge is tcpdump on the bridge, and a host that asks for every address all the time.
type judge struct {
	r       *roles
	capture *capture
	stop    chan struct{}
	done    sync.WaitGroup
}

// askEvery is the interval of questions for each address.
const askEvery = 5 * time.Millisecond

func (r *roles) judge() *judge {
	r.t.Helper()
	j := &judge{r: r, capture: record(r.t, r.sw, "br0", "--immediate-mode", "arp or icmp6"), stop: make(chan struct{})}
	fd, index, mac := r.clientSocket()
	j.done.Go(func() {
		defer unix.Close(fd)
		tick := time.NewTicker(askEvery)
		defer tick.Stop()
		for {
			for _, a := range roleAddresses {
				_ = unix.Sendto(fd, whoHas(netip.MustParseAddr(a), mac), 0, &unix.SockaddrLinklayer{Ifindex: index})
			}
			select {
			case <-j.stop:
				return
			case <-tick.C:
			}
		}
	})
	return j
}

// whoHas asks for an address, as the client does.
func whoHas(a netip.Addr, mac wire.MAC) []byte {
	if a.Is4() {
		b := wire.AppendEthernet(nil, wire.Broadcast, mac, wire.EtherTypeARP)
		return wire.AppendARP(b, wire.ARPRequest, wire.ARPHost{MAC: mac, Addr: [4]byte{198, 18, 0, 21}}, wire.ARPHost{Addr: a.As4()})
	}
	group := wire.SolicitedNode(a.As16())
	b := wire.AppendEthernet(nil, wire.MulticastMAC6(group), mac, wire.EtherTypeIPv6)
	n := len(b)
	b = wire.AppendIPv6(b, &wire.IPv6Header{
		Src: netip.MustParseAddr("2001:db8::21").As16(), Dst: group, NextHeader: wire.ProtoICMPv6, HopLimit: wire.NDHopLimit, PayloadLen: wire.NeighborSolicitLen + 8,
	})
	b = wire.AppendNeighborSolicit(b, a.As16(), mac)
	wire.ICMPv6(b[n+wire.IPv6Len:]).FillChecksum(wire.IPv6(b[n:]).Pseudo())
	return b
}

// tcpdump's lines about who has an address.
var (
	arpLine  = regexp.MustCompile(`^(\d+\.\d+) ([0-9a-f:]{17}) > .*(?:Reply ([0-9.]+) is-at|who-has ([0-9.]+)(?: \([0-9a-f:]+\))? tell ([0-9.]+),)`)
	ndLine   = regexp.MustCompile(`^(\d+\.\d+) ([0-9a-f:]{17}) > .*neighbor advertisement, tgt is ([0-9a-f:]+)`)
	linkAddr = regexp.MustCompile(`link/ether ([0-9a-f:]{17})`)
)

// runs returns, for each address, which gateways have said so far to have it, one after the other: "01" is the first, then the
// second, and from then on only that. said has how often that was. It fails where another host does.
func (j *judge) runs() (runs map[string]string, said map[string]int) {
	t := j.r.t
	t.Helper()
	text, err := j.r.sw.Run("tcpdump", "-r", j.capture.file, "-n", "-e", "-tt")
	if err != nil && !strings.Contains(err.Error(), "truncated dump file") { // a packet that is being written
		t.Fatal(err)
	}
	names := map[string]string{}
	for i, g := range []*site{j.r.site, j.r.second} {
		out, err := g.gate.Run("ip", "link", "show", "eth0")
		j.r.must(err)
		names[linkAddr.FindStringSubmatch(out)[1]] = fmt.Sprint(i)
	}
	runs, said = map[string]string{}, map[string]int{}
	for line := range strings.Lines(text) {
		at, mac := claims(line)
		if !slices.Contains(roleAddresses, at) {
			continue
		}
		name := names[mac]
		if name == "" {
			t.Errorf("another host answers for %s: %s", at, line)
		}
		if said[at]++; !strings.HasSuffix(runs[at], name) {
			runs[at] += name
		}
	}
	return runs, said
}

// claims returns the address that a line of tcpdump says to be at a link address.
func claims(line string) (at, mac string) {
	if m := arpLine.FindStringSubmatch(line); m != nil {
		mac, at = m[2], m[3]
		if at == "" && m[4] == m[5] { // a host announces its own address
			at = m[4]
		}
	} else if m := ndLine.FindStringSubmatch(line); m != nil {
		mac, at = m[2], m[3]
	}
	return at, mac
}

// await waits until the gateways in want have been heard for each address, one after the other. A busy gateway may be active for
// so short a time otherwise that no question reaches it.
func (j *judge) await(want string) {
	j.r.t.Helper()
	heard := func() bool {
		runs, said := j.runs()
		return !slices.ContainsFunc(roleAddresses, func(a string) bool { return len(runs[a]) < len(want) || said[a] < leastSaid })
	}
	for end := time.Now().Add(20 * time.Second); !heard() && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
	}
}

// wantRuns ends the judgement: all addresses went through the same gateways.
func (j *judge) wantRuns(want string) {
	t := j.r.t
	t.Helper()
	j.await(want)
	close(j.stop)
	j.done.Wait()
	j.capture.stop()
	runs, said := j.runs()
	t.Logf("said %v", said)
	for _, a := range roleAddresses {
		if runs[a] != want || said[a] < leastSaid {
			t.Errorf("%s was answered for by gateways %s one after the other, want %s, in %d answers", a, runs[a], want, said[a])
		}
	}
}

// leastSaid is how many answers for an address a judgement needs.
const leastSaid = 20

// allDownloads runs downloads of all modes at once, n of each, and calls during when all are under way.
func (r *roles) allDownloads(n int, during func()) (lost int) {
	r.t.Helper()
	var under, done sync.WaitGroup
	var mu sync.Mutex
	ports := []int{8100, 8120, 8140, 8160}
	under.Add(len(ports))
	go1 := make(chan struct{})
	for _, port := range ports {
		done.Go(func() {
			l := r.downloadsFrom(n, []string{"198.18.0.100", "[2001:db8::100]"}, port, func() { under.Done(); <-go1 })
			mu.Lock()
			defer mu.Unlock()
			if lost += l; l > 0 {
				r.t.Errorf("port %d: %d of %d downloads are lost", port, l, n)
			}
		})
	}
	under.Wait()
	during()
	close(go1)
	done.Wait()
	return lost
}

// TestTheStandbyTakesOverFromAKilledGateway kills the active one of two gateways in the middle of 200 downloads, of NAT and of all
// direct modes: none is lost, and at no time do two answer for one address. Started again, the first stays a standby.
func TestTheStandbyTakesOverFromAKilledGateway(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"afxdp", "afpacket"} {
		t.Run(driver, func(t *testing.T) {
			r := newRoles(t, "mr-role"+driver[2:4], driver, 4*time.Second, [2]string{})
			r.startBoth()
			j := r.judge()
			r.allDownloads(50, func() {
				r.must(r.cmd.Process.Kill())
				r.cmd.Wait()
			})
			r.awaitRole(r.second, "active", 1)
			r.out.Reset()
			r.start()
			r.awaitRole(r.site, "standby", 1)
			r.awaitRoleServed()
			j.wantRuns("01")
			r.stop()
			r.second.stop()
		})
	}
}
