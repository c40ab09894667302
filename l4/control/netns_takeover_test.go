package control_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/l4/control"
)

// A gateway takes over the connections of one that is killed: the network of newPair, with a link between the gateways
// for their control traffic:
//
//	gate sync 198.18.9.1 ---- sync 198.18.9.2 gate2
//
// Which gateway has the addresses is up to routes: those of the client and of the backends lead to one at a time.

// takeover is a pair of gateways, of which one has the traffic.
type takeover struct {
	*pair
}

// takeoverConfig has a service with SNAT addresses on port 80 and one with clients' own on port 81. The first verb is
// the key sync of the gateway.
const takeoverConfig = `
devices: [{name: front, driver: afxdp}, {name: back1, driver: afxdp}, {name: back2, driver: afxdp}]
snat: [198.18.2.1, "2001:db8:2::1"]
admin: {socket: ""}
%s
services:
  - name: snat
    address: [198.18.1.1:80, "[2001:db8:1::1]:80"]
    backends: &backends
      - {name: b1, address: [198.18.3.2:8080, "[2001:db8:3::2]:8080"]}
      - {name: b2, address: [198.18.4.2:8080, "[2001:db8:4::2]:8080"]}
  - name: client
    source: client
    address: [198.18.1.1:81, "[2001:db8:1::1]:81"]
    backends:
      - {name: b1, address: [198.18.3.2:8081, "[2001:db8:3::2]:8081"]}
      - {name: b2, address: [198.18.4.2:8081, "[2001:db8:4::2]:8081"]}
  - name: udp
    protocol: udp
    address: [198.18.1.1:53, "[2001:db8:1::1]:53"]
    backends: *backends
`

// newTakeover lays out the network and starts both gateways, each with its key sync.
func newTakeover(t *testing.T, prefix string, sync [2]string) *takeover {
	t.Helper()
	s, n := layOut(t, prefix)
	p := layOutTakeover(s, n)
	for i := range p.backends {
		p.servePaced(i)
	}
	for i, gate := range []*site{p.site, p.second} {
		s.must(os.WriteFile(gate.file, fmt.Appendf(nil, takeoverConfig, sync[i]), 0o644))
	}
	p.leadAll(1)
	p.second.start()
	p.awaitServed()
	p.leadAll(0)
	p.start()
	p.awaitServed()
	return p
}

// layOutTakeover adds a second gateway to a site, and the link between both.
func layOutTakeover(s *site, n *testnet.Net) *takeover {
	s.t.Helper()
	p := &takeover{layOutPair(s.t, s, n)}
	s.must(n.Link(p.gate, "sync", p.second.gate, "sync"))
	s.must(p.gate.Up("sync", "198.18.9.1/24"))
	s.must(p.second.gate.Up("sync", "198.18.9.2/24"))
	p.second.file = filepath.Join(s.t.TempDir(), "second.yaml")
	return p
}

// leadAll has the client's and the backends' packets go to one of the gateways.
func (p *takeover) leadAll(to int) {
	p.t.Helper()
	p.leadBackends(to)
	p.lead(to)
}

func (p *takeover) leadBackends(to int) {
	p.t.Helper()
	for i, ns := range p.backends {
		four, six, dev := fmt.Sprintf("198.18.%d.1", 3+i), fmt.Sprintf("2001:db8:%d::1", 3+i), "eth0"
		if to == 1 {
			four, six, dev = fmt.Sprintf("198.18.%d.1", 23+i), fmt.Sprintf("2001:db8:%d::1", 23+i), "eth1"
		}
		_, err := ns.Run("ip", "route", "replace", "default", "via", four, "dev", dev, "src", fmt.Sprintf("198.18.%d.2", 3+i))
		p.must(err)
		_, err = ns.Run("ip", "-6", "route", "replace", "default", "via", six, "dev", dev, "src", fmt.Sprintf("2001:db8:%d::2", 3+i))
		p.must(err)
	}
}

// awaitServed waits until the gateway that has the traffic serves both families.
func (p *takeover) awaitServed() {
	p.t.Helper()
	for _, host := range []string{"198.18.1.1", "[2001:db8:1::1]"} {
		for _, port := range []int{80, 81} {
			var err error
			for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				if err = p.knock("tcp", fmt.Sprintf("%s:%d", host, port), time.Second); err == nil {
					break
				}
			}
			p.must(err)
		}
	}
}

// The download: so many bytes in so many pieces, with a pause after each.
const (
	downloadSize   = 200_000
	downloadPieces = 50
	downloadPause  = 20 * time.Millisecond
)

// servePaced starts backend i's server, which sends a download on each connection as soon as it is open.
func (p *takeover) servePaced(i int) {
	p.t.Helper()
	p.servePacedAt(i, ":8080", ":8081")
	p.must(p.backends[i].Do(func() error {
		pc, err := net.ListenPacket("udp", ":8080")
		if err != nil {
			return err
		}
		p.t.Cleanup(func() { pc.Close() })
		go answerLoop(pc, fmt.Sprintf("b%d", i+1))
		return nil
	}))
}

// servePacedAt starts backend i's server at some ports.
func (p *takeover) servePacedAt(i int, ports ...string) {
	p.t.Helper()
	p.must(p.backends[i].Do(func() error {
		for _, port := range ports {
			err := testnet.ServeTCP(p.t, port, func(c net.Conn) {
				from := sequence()
				for range downloadPieces {
					if _, err := io.CopyN(c, from, downloadSize/downloadPieces); err != nil {
						return
					}
					time.Sleep(downloadPause)
				}
			})
			if err != nil {
				return err
			}
		}
		return nil
	}))
}

// downloads runs n downloads at once, from a port of both address families, and calls during when all are under way.
// It returns how many failed.
func (p *takeover) downloads(n, port int, during func()) (lost int) {
	p.t.Helper()
	return p.downloadsFrom(n, []string{"198.18.1.1", "[2001:db8:1::1]"}, port, during)
}

// downloadsFrom is downloads from other addresses.
func (p *takeover) downloadsFrom(n int, hosts []string, port int, during func()) (lost int) {
	p.t.Helper()
	want := fmt.Sprintf("%x", sumOf(downloadSize))
	var under, done sync.WaitGroup
	under.Add(n)
	errs := make([]error, n)
	for i := range n {
		c := p.dial("tcp", fmt.Sprintf("%s:%d", hosts[i%len(hosts)], port))
		done.Go(func() {
			c.SetDeadline(time.Now().Add(time.Minute))
			sum, head := sha256.New(), make([]byte, 20_000)
			_, err := io.ReadFull(c, head)
			under.Done()
			if err == nil {
				sum.Write(head)
				_, err = io.Copy(sum, c)
			}
			if got := fmt.Sprintf("%x", sum.Sum(nil)); err == nil && got != want {
				err = fmt.Errorf("received %s, want %s", got, want)
			}
			errs[i] = err
		})
	}
	under.Wait()
	during()
	done.Wait()
	for _, err := range errs {
		if err != nil {
			if lost++; lost <= 3 {
				p.t.Log(err)
			}
		}
	}
	return lost
}

// kill ends the first gateway as a power failure does, and leads the traffic to the second: the backends' first, so that
// their packets reach it before their clients'.
func (p *takeover) kill() {
	p.t.Helper()
	p.must(p.cmd.Process.Kill())
	p.cmd.Wait()
	p.leadBackends(1)
	time.Sleep(300 * time.Millisecond)
	p.lead(1)
}

// TestBackendsPacketsPickUpConnections kills one of two gateways that share nothing. With `source: client` the packets
// of either side are enough for the other to go on.
func TestBackendsPacketsPickUpConnections(t *testing.T) {
	t.Parallel()
	p := newTakeover(t, "mr-gwtake", [2]string{})
	if lost := p.downloads(80, 81, p.kill); lost != 0 {
		t.Errorf("%d of 80 downloads are lost", lost)
	}
	p.second.stop()
}

// syncKeys returns the key sync of both gateways.
func syncKeys() [2]string {
	const of = "sync: {listen: \"198.18.9.%d:3780\", peer: \"198.18.9.%d:3780\", key: \"%064x\", index: %d}"
	return [2]string{fmt.Sprintf(of, 1, 2, 7, 0), fmt.Sprintf(of, 2, 1, 7, 1)}
}

// TestDownloadsSurviveTheirGateway kills one of two gateways that share their connections. The other goes on with all of
// them, with SNAT addresses and with clients' own; then the first is started again, gets all connections back, and the
// second is killed.
func TestDownloadsSurviveTheirGateway(t *testing.T) {
	t.Parallel()
	p := newTakeover(t, "mr-gwsync", syncKeys())
	for _, port := range []int{80, 81} {
		if lost := p.downloads(80, port, p.kill); lost != 0 {
			t.Errorf("port %d: %d of 80 downloads are lost", port, lost)
		}
		p.out.Reset()
		p.start()
		p.leadAll(0)
		p.awaitServed()
	}
	lost := p.downloads(80, 80, func() {
		p.kill()
		time.Sleep(200 * time.Millisecond)
		p.out.Reset()
		streams := func() int { return strings.Count(p.second.log.String(), "stream=send state=up") }
		before := streams()
		p.start()
		for end := time.Now().Add(10 * time.Second); streams() == before && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		}
		time.Sleep(100 * time.Millisecond) // the transfer
		p.leadAll(0)
	})
	if lost != 0 {
		t.Errorf("there and back: %d of 80 downloads are lost", lost)
	}
	first, second := p.stop(), p.second.stop()
	for i, st := range []*control.SyncStatus{first.Gateway.Sync, second.Gateway.Sync} {
		if st.Dropped != 0 || st.Outcomes["unknown"]+st.Outcomes["no_room"]+st.Outcomes["conflict"] != 0 || st.ReceivedRecords == 0 {
			t.Errorf("gateway %d: %+v", i+1, st)
		}
		t.Logf("gateway %d: %+v", i+1, st)
	}
}

// opener opens connections to an address, one after the other.
type opener struct {
	address string
	mu      sync.Mutex
	opened  int
	failed  time.Time // the last time
	err     error
}

// run opens connections until stop is closed.
func (o *opener) run(p *takeover, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		err := p.knock("tcp", o.address, time.Second)
		o.mu.Lock()
		if err != nil {
			o.failed, o.err = time.Now(), err
		} else {
			o.opened++
		}
		o.mu.Unlock()
	}
}

// served returns how many were opened.
func (o *opener) served() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.opened
}

// TestNewConnectionsGoOnBesideATakeOver kills the gateway that has the traffic while downloads are under way and clients
// open connections all the time. No download is lost, and a while later every client is served again, each time.
func TestNewConnectionsGoOnBesideATakeOver(t *testing.T) {
	t.Parallel()
	p := newTakeover(t, "mr-gwopen", syncKeys())
	var all []*opener
	for _, host := range []string{"198.18.1.1", "[2001:db8:1::1]"} {
		for _, port := range []int{80, 81} {
			all = append(all, &opener{address: fmt.Sprintf("%s:%d", host, port)})
		}
	}
	// await waits until each client has opened so many connections more.
	await := func(when string, n int) {
		t.Helper()
		for _, o := range all {
			for end, want := time.Now().Add(30*time.Second), o.served()+n; o.served() < want; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%s: %s: %v", when, o.address, o.err)
				}
			}
		}
	}
	stop := make(chan struct{})
	var running sync.WaitGroup
	for _, o := range all {
		running.Go(func() { o.run(p, stop) })
	}
	var killed, again time.Time
	lost := p.downloads(80, 80, func() {
		await("before", 5)
		killed = time.Now()
		p.kill()
		await("after the take-over", 1)
		again = time.Now()
		await("later", 20)
	})
	close(stop)
	running.Wait()
	if lost != 0 {
		t.Errorf("%d of 80 downloads are lost", lost)
	}
	opened := 0
	for _, o := range all {
		opened += o.served()
		if late := o.failed.Sub(again); late > 2*time.Second { // one that began before takes a second
			t.Errorf("%s: a connection fails %v after the take-over: %v", o.address, late, o.err)
		}
	}
	t.Logf("%d connections opened; all clients were served %v after the kill", opened, again.Sub(killed).Round(time.Millisecond))
	if st := p.second.stop().Gateway.Sync; st.Outcomes["conflict"]+st.Outcomes["no_room"]+st.Outcomes["unknown"] != 0 {
		t.Errorf("records %v", st.Outcomes)
	}
}

// TestAGatewayThatStopsLeavesItsConnectionsToItsPeer stops the gateway that has the traffic, as for an upgrade.
func TestAGatewayThatStopsLeavesItsConnectionsToItsPeer(t *testing.T) {
	t.Parallel()
	p := newTakeover(t, "mr-gwleave", syncKeys())
	lost := p.downloads(40, 80, func() {
		p.stop()
		p.leadAll(1)
	})
	if lost != 0 {
		t.Errorf("%d of 40 downloads are lost", lost)
	}
	if log := p.log.String(); !strings.Contains(log, "to=198.18.9.2:3780") {
		t.Error("the log does not say that the peer has the connections")
	}
	p.second.stop()
}

// TestAnnouncementsWaitForThePeer starts a gateway whose peer does not run, and again when it does. Hosts hear of its
// addresses when the peer's connections are there, or have been awaited for 5 s.
func TestAnnouncementsWaitForThePeer(t *testing.T) {
	t.Parallel()
	s, n := layOut(t, "mr-gwwait")
	p := layOutTakeover(s, n)
	for i, gate := range []*site{p.site, p.second} {
		config := strings.ReplaceAll(fmt.Sprintf(takeoverConfig, syncKeys()[i]), "address: [198.18.1.1:80,", "address: [198.18.0.77:80, 198.18.1.1:80,")
		s.must(os.WriteFile(gate.file, []byte(config), 0o644))
	}
	heard := s.hearARP("eth0", "198.18.0.77")
	began := time.Now()
	p.start()
	if took := heard().Sub(began); took < 5*time.Second {
		t.Errorf("announced after %v without a peer", took)
	}
	p.logged("announce state=begins synced=false") // hosts hear of it first
	p.must(p.cmd.Process.Kill())
	p.cmd.Wait()
	p.second.start()
	heard = s.hearARP("eth0", "198.18.0.77") // the queue of the first has its repetitions
	first := p.log.String()
	p.start()
	heard()
	p.logged("announce state=begins synced=true")
	for i, log := range []string{first, strings.TrimPrefix(p.log.String(), first)} {
		if strings.Count(log, "announce state=waiting") != 1 || strings.Count(log, "announce state=begins") != 1 {
			t.Errorf("start %d: the log lacks the wait or its end:\n%s", i+1, log)
		}
	}
	p.stop()
	p.second.stop()
}

// hearARP returns a function that returns when the client first heard an ARP packet from addr on a device.
func (s *site) hearARP(dev, addr string) func() time.Time {
	s.t.Helper()
	fd := -1
	s.must(s.client.Do(func() (err error) {
		link, err := net.InterfaceByName(dev)
		if err != nil {
			return err
		}
		const arp = unix.ETH_P_ARP<<8&0xff00 | unix.ETH_P_ARP>>8 // in network byte order
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, arp); err != nil {
			return err
		}
		s.t.Cleanup(func() { unix.Close(fd) })
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: arp, Ifindex: link.Index})
	}))
	want := netip.MustParseAddr(addr).AsSlice()
	return func() time.Time {
		s.t.Helper()
		b := make([]byte, 100)
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
			if n, err := unix.Read(fd, b); err == nil && n >= 42 && bytes.Equal(b[28:32], want) {
				return time.Now()
			}
		}
		s.t.Fatalf("no ARP packet from %s in 20 s", addr)
		return time.Time{}
	}
}
