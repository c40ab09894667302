package ip

import (
	"bytes"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// rawDevice is a packet socket as a node's output.
type rawDevice struct {
	fd   int
	room []byte
}

func (p *rawDevice) Frame(_ uint8, n int) []byte { return p.room[:n] }

// Send ignores errors, as a wire does.
func (p *rawDevice) Send(_ uint8, n int) { _ = unix.Send(p.fd, p.room[:n], 0) }

// open binds a packet socket to an interface of the namespace.
func openRaw(t *testing.T, ns *testnet.Namespace, name string) (p *rawDevice, mac wire.MAC) {
	t.Helper()
	if err := ns.Do(func() error {
		ifi, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, all)
		if err != nil {
			return err
		}
		p, mac = &rawDevice{fd, make([]byte, 1<<16)}, wire.MAC(ifi.HardwareAddr)
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: ifi.Index})
	}); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptTimeval(p.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 2000}); err != nil {
		t.Fatal(err)
	}
	return p, mac
}

// serveRaw runs a node on a packet socket until stop is closed.
func serveRaw(t *testing.T, p *rawDevice, mac wire.MAC, stop <-chan struct{}) (counts [packet.Verdicts]int, s Stats) {
	now := func() clock.Time { return clock.Time(time.Now().UnixNano()) }
	node := New(Config{Now: now(), Links: []Link{{MAC: mac, MTU: 1500}}, Output: p})
	for _, a := range []string{"198.18.0.2/24", "2001:db8::2/64"} {
		if err := node.AddAddr(now(), 0, netip.MustParsePrefix(a), Static, true); err != nil {
			t.Error(err)
		}
	}
	eyes := (&lan{t: t}).add(1, nil) // its engine
	buf := make([]byte, 1<<16)
	for {
		select {
		case <-stop:
			return counts, node.Stats()
		default:
		}
		n, from, err := unix.Recvfrom(p.fd, buf, 0)
		node.Poll(now())
		if l, ok := from.(*unix.SockaddrLinklayer); err != nil || ok && l.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		d := eyes.describe(buf[:n])
		var g Datagram
		v := node.Input(now(), 0, buf[:n], &d, &g)
		if v == packet.Undecided {
			v = packet.DropNoSocket
			node.Reject(now(), 0, g.Packet, PortUnreachable)
		}
		counts[v]++
	}
}

// Linux resolves the node, pings it with small packets and with fragments, and gets port unreachable from a closed port.
func TestNodeAgainstLinux(t *testing.T) {
	testnet.Program(t, "ping")
	n := testnet.For(t, "mr-ip")
	linux, node := n.Namespace("linux"), n.Namespace("node")
	for _, err := range []error{
		node.Sysctl("net.ipv6.conf.default.disable_ipv6", "1"),
		n.Link(linux, "eth0", node, "eth0"),
		linux.Up("eth0", "198.18.0.1/24", "2001:db8::1/64"), node.Up("eth0"),
		linux.NoOffload("eth0"), node.NoOffload("eth0"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	p, mac := openRaw(t, node, "eth0")
	defer unix.Close(p.fd)
	stop, done := make(chan struct{}), make(chan struct{})
	var counts [packet.Verdicts]int
	var stats Stats
	go func() {
		defer close(done)
		counts, stats = serveRaw(t, p, mac, stop)
	}()
	for _, dst := range []string{"198.18.0.2", "2001:db8::2"} {
		for _, size := range []string{"56", "4000", "20000"} {
			for range 3 { // one at a time: after the last of several, ping waits for twice the round-trip time only
				if out, err := linux.Run("ping", "-c", "1", "-W", "20", "-s", size, dst); err != nil {
					t.Errorf("ping -s %s %s: %v\n%s", size, dst, err, out)
				}
			}
		}
		if err := linux.Do(func() error { return expectRefused(t, dst) }); err != nil {
			t.Error(err)
		}
	}
	neigh, err := linux.Run("ip", "neigh")
	close(stop)
	<-done
	if err != nil || strings.Count(neigh, mac.String()) != 2 {
		t.Errorf("ip neigh: %v\n%s", err, neigh)
	}
	if stats.Echoes != 18 || stats.Reassembled != 12 || stats.Fragmented != 12 || counts[packet.DropNoSocket] != 2 {
		t.Errorf("%+v, verdicts %v", stats, counts)
	}
}

// expectRefused sends a datagram to a closed port, and expects ECONNREFUSED.
func expectRefused(t *testing.T, dst string) error {
	c, err := net.Dial("udp", net.JoinHostPort(dst, "9"))
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write(bytes.Repeat([]byte("x"), 100)); err != nil {
		return err
	}
	_ = c.SetReadDeadline(time.Now().Add(3 * time.Second))
	if _, err := c.Read(make([]byte, 10)); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("%s: read says %v", dst, err)
	}
	return nil
}
