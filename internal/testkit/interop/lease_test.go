package interop

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/server4"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"

	"github.com/millrace/millrace/internal/app/stackd"
	"github.com/millrace/millrace/internal/testkit/testnet"
)

const linux4, linux6 = "198.18.9.1", "2001:db8:9::1"

// until waits until ok holds.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// bare makes a link with a Linux host at its end, and our host as change says.
func bare(t *testing.T, name string, prepare func(linux *testnet.Namespace), change func(*stackd.Device)) (*testnet.Namespace, *stackd.Daemon) {
	t.Helper()
	n := testnet.For(t, "mr-stack-"+name)
	linux, ours := n.Namespace("linux"), n.Namespace("ours")
	if err := errors.Join(n.Link(linux, "eth0", ours, "st0"), linux.NoOffload("eth0"), linux.Up("eth0", linux4+"/24", linux6+"/64"), ours.Up("st0")); err != nil {
		t.Fatal(err)
	}
	prepare(linux)
	v := stackd.NewDevice("st0")
	v.Driver = "afxdp"
	change(&v)
	cfg := stackd.New()
	cfg.Devices, cfg.Services, cfg.Control.Socket = []stackd.Device{v}, stackd.AllServices(), t.TempDir()+"/stack.sock"
	return linux, runDaemon(t, ours, cfg)
}

// runDaemon runs a host in a namespace until the test ends. Frames that are lost are an error of Close.
func runDaemon(t *testing.T, ns *testnet.Namespace, cfg *stackd.Config) *stackd.Daemon {
	t.Helper()
	var d *stackd.Daemon
	var log strings.Builder
	err := ns.Do(func() (err error) {
		d, err = stackd.Open(cfg, stackd.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, d.Close()); err != nil {
			t.Errorf("the host ends with %v", err)
		}
		p := d.Stats().Packets
		if sum := p.Forwarded + p.Delivered + total(p.Dropped); p.Received+p.Originated != sum {
			t.Errorf("the counters do not balance: %+v", p)
		}
		if t.Failed() {
			t.Logf("log of the host:\n%s\n%+v", &log, d.Stats())
		}
	})
	return d
}

// total adds up what was dropped.
func total(m map[string]uint64) (n uint64) {
	for _, v := range m {
		n += v
	}
	return n
}

// lender is a DHCP server: an independent one. It notes what it is asked.
type lender struct {
	mu    sync.Mutex
	asked []dhcpv4.MessageType
	peers []string // who asked, the broadcast address for nobody
	give  net.IP
}

func (l *lender) heard(m dhcpv4.MessageType) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.asked {
		if a == m {
			return true
		}
	}
	return false
}

func (l *lender) answer(conn net.PacketConn, peer net.Addr, m *dhcpv4.DHCPv4) {
	l.mu.Lock()
	l.asked, l.peers = append(l.asked, m.MessageType()), append(l.peers, peer.String())
	give := l.give
	if m.MessageType() == dhcpv4.MessageTypeDecline {
		l.give = net.IP{198, 18, 9, 51}
	}
	l.mu.Unlock()
	typ := dhcpv4.MessageTypeAck
	switch m.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		typ = dhcpv4.MessageTypeOffer
	case dhcpv4.MessageTypeRequest:
	default:
		return
	}
	server := net.ParseIP(linux4)
	reply, err := dhcpv4.NewReplyFromRequest(m, dhcpv4.WithMessageType(typ), dhcpv4.WithYourIP(give), dhcpv4.WithServerIP(server),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(server)), dhcpv4.WithNetmask(net.CIDRMask(24, 32)), dhcpv4.WithRouter(server), dhcpv4.WithLeaseTime(3600))
	if err == nil {
		_, _ = conn.WriteTo(reply.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: dhcpv4.ClientPort})
	}
}

func TestAnAddressComesByDHCPAndGoesBack(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: no network namespaces")
	}
	l := &lender{give: net.IP{198, 18, 9, 50}}
	var d *stackd.Daemon
	var linux *testnet.Namespace
	t.Run("use", func(t *testing.T) {
		linux, d = bare(t, "dhcp", l.serve(t), func(v *stackd.Device) { v.DHCP = true })
		until(t, "an address", func() bool { return usable(d, "198.18.9.50/24", "dhcp") })
		for _, r := range d.Routes() {
			if r.To.Bits() == 0 && (r.Via == nil || r.Via.String() != linux4 || r.Origin != "dhcp") {
				t.Errorf("the default route is %+v", r)
			}
		}
		for _, a := range d.Addrs() {
			if left := a.Valid; a.Origin == "dhcp" && (left == nil || *left < 3500 || *left > 3600 || a.Preferred == nil || *a.Preferred != *left) {
				t.Errorf("%v of a lease of 3600 s is valid for %v, preferred for %v", a.Address, left, a.Preferred)
			}
		}
		testnet.Program(t, "ping")
		if out, err := linux.Run("ping", "-c", "2", "-i", "0.1", "-W", "20", "198.18.9.50"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		if n := len(d.Routes()); n != 2 {
			t.Errorf("%d routes: %+v", n, d.Routes())
		}
	})
	until(t, "DHCPRELEASE", func() bool { return l.heard(dhcpv4.MessageTypeRelease) })
	if peers := l.peers; peers[0] != "255.255.255.255:68" || peers[len(peers)-1] != "198.18.9.50:68" {
		t.Errorf("messages came from %v", peers)
	}
}

// serve answers on the Linux host's interface.
func (l *lender) serve(t *testing.T) func(linux *testnet.Namespace) {
	return func(linux *testnet.Namespace) {
		t.Helper()
		var s *server4.Server
		err := linux.Do(func() (err error) {
			s, err = server4.NewServer("eth0", &net.UDPAddr{IP: net.IPv4zero, Port: dhcpv4.ServerPort}, l.answer)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = s.Serve() }()
		t.Cleanup(func() { time.Sleep(50 * time.Millisecond); s.Close() }) // after the host has said goodbye
	}
}

// usable reports whether the host has an address that packets may be sent from.
func usable(d *stackd.Daemon, prefix, origin string) bool {
	for _, a := range d.Addrs() {
		if a.Address.String() == prefix && a.State == "preferred" && a.Origin == origin {
			return true
		}
	}
	return false
}

// TestAnAddressThatAnotherHostHasIsDeclined: Linux has the address that the server gives first.
func TestAnAddressThatAnotherHostHasIsDeclined(t *testing.T) {
	l := &lender{give: net.IP{198, 18, 9, 50}}
	_, d := bare(t, "decline", func(linux *testnet.Namespace) {
		if err := linux.Up("eth0", "198.18.9.50/24"); err != nil {
			t.Fatal(err)
		}
		l.serve(t)(linux)
	}, func(v *stackd.Device) { v.DHCP = true })
	until(t, "DHCPDECLINE", func() bool { return l.heard(dhcpv4.MessageTypeDecline) })
	if usable(d, "198.18.9.50/24", "dhcp") {
		t.Error("the address is used all the same")
	}
}

// TestAddressesComeFromRouters: a router advertisement brings an IPv6 address and a default route.
func TestAddressesComeFromRouters(t *testing.T) {
	linux, d := bare(t, "slaac", func(*testnet.Namespace) {}, func(v *stackd.Device) { v.SLAAC = true })
	stop := make(chan struct{})
	var routers sync.WaitGroup
	routers.Go(func() { advertise(t, linux, stop) })
	defer func() { close(stop); routers.Wait() }()
	prefix := netip.MustParsePrefix("2001:db8:77::/64")
	var got netip.Addr
	until(t, "an address", func() bool {
		for _, a := range d.Addrs() {
			if prefix.Contains(a.Address.Addr()) && a.State == "preferred" && a.Valid != nil {
				got = a.Address.Addr()
				return true
			}
		}
		return false
	})
	if err := linux.Up("eth0", "2001:db8:77::1/64"); err != nil {
		t.Fatal(err)
	}
	testnet.Program(t, "ping")
	if out, err := linux.Run("ping", "-c", "2", "-i", "0.1", "-W", "20", got.String()); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	text := ""
	for _, r := range d.Routes() {
		text += r.To.String() + " " + r.Origin + "\n"
	}
	if !strings.Contains(text, "::/0 ra\n") {
		t.Errorf("no default route in\n%s", text)
	}
}

// advertise sends router advertisements (RFC 4861 4.2, 4.6.2) from the Linux host until stop.
func advertise(t *testing.T, linux *testnet.Namespace, stop <-chan struct{}) {
	var c *icmp.PacketConn
	var zone string
	err := linux.Do(func() (err error) {
		c, err = icmp.ListenPacket("ip6:ipv6-icmp", "::")
		if err != nil {
			return err
		}
		eth, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		zone = strconv.Itoa(eth.Index) // package net remembers names, of whichever namespace
		p := c.IPv6PacketConn()
		return errors.Join(p.SetMulticastHopLimit(255), p.SetMulticastInterface(eth))
	})
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	body := make([]byte, 12, 44)
	body[0] = 64
	binary.BigEndian.PutUint16(body[2:], 1800)
	option := make([]byte, 32)
	copy(option, []byte{3, 4, 64, 0xc0})
	binary.BigEndian.PutUint32(option[4:], 7200)
	binary.BigEndian.PutUint32(option[8:], 3600)
	prefix := netip.MustParseAddr("2001:db8:77::").As16()
	copy(option[16:], prefix[:])
	m := icmp.Message{Type: ipv6.ICMPTypeRouterAdvertisement, Body: &icmp.RawBody{Data: append(body, option...)}}
	b, err := m.Marshal(nil) // the kernel fills in the checksum of ICMPv6
	if err != nil {
		t.Error(err)
		return
	}
	for {
		_, _ = c.WriteTo(b, &net.IPAddr{IP: net.ParseIP("ff02::1"), Zone: zone}) // at first the kernel may have no address to send from
		select {
		case <-stop:
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
}
