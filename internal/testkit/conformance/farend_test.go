package conformance_test

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// station is a raw socket of Linux on an interface: the far end of a queue.
type station struct {
	t    testing.TB
	ns   *testnet.Namespace
	name string
	fd   int
	to   unix.SockaddrLinklayer
	buf  [1 << 16]byte
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// namespaces makes namespaces in which the kernel says nothing of its own.
func namespaces(t testing.TB, names ...string) (n *testnet.Net, list []*testnet.Namespace) {
	t.Helper()
	n = testnet.For(t, "mr-conf")
	for _, name := range names {
		ns := n.Namespace(name)
		must(t, ns.Sysctl("net.ipv6.conf.default.disable_ipv6", "1"))
		list = append(list, ns)
	}
	return n, list
}

func newStation(t testing.TB, ns *testnet.Namespace, name string) *station {
	t.Helper()
	s := &station{t: t, ns: ns, name: name}
	must(t, ns.Do(func() error {
		i, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		s.to = unix.SockaddrLinklayer{Ifindex: i.Index, Protocol: unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8}
		s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	}))
	t.Cleanup(func() { unix.Close(s.fd) })
	must(t, errors.Join(
		unix.SetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20),
		unix.Bind(s.fd, &s.to),
	))
	return s
}

// send gives a packet to the interface. What the interface has no room for is lost and counted by
// it, and no matter of the sender's.
func (s *station) send(p []byte) bool {
	switch err := unix.Sendto(s.fd, p, 0, &s.to); {
	case err == nil, errors.Is(err, unix.ENOBUFS):
		return true
	case errors.Is(err, unix.ENETDOWN), errors.Is(err, unix.ENXIO):
		return false
	default:
		s.t.Errorf("send at the far end: %v", err)
		return false
	}
}

func (s *station) recv() []byte {
	n, _, err := unix.Recvfrom(s.fd, s.buf[:], unix.MSG_DONTWAIT)
	if err != nil {
		return nil
	}
	return s.buf[:n]
}

// lost counts what the interface did not get across.
func (s *station) lost() (n uint64) {
	must(s.t, s.ns.Do(func() error {
		l, err := netlink.LinkByName(s.name)
		if err == nil {
			n = l.Attrs().Statistics.TxDropped
		}
		return err
	}))
	return n
}

// ip runs ip(8) with words joined by spaces.
func ip(ns *testnet.Namespace, name string, up bool) error {
	word := "down"
	if up {
		word = "up"
	}
	_, err := ns.Run("ip", "link", "set", name, word)
	return err
}

// veth is a wire to Linux.
type veth struct {
	here, there *testnet.Namespace
	station     *station
}

const (
	dev = "mr0" // of the driver
	far = "eth0"
)

func newVeth(t testing.TB, mtu int) *veth {
	t.Helper()
	n, list := namespaces(t, "here", "there")
	v := &veth{here: list[0], there: list[1]}
	must(t, n.Link(v.there, far, v.here, dev))
	for name, ns := range map[string]*testnet.Namespace{far: v.there, dev: v.here} {
		_, err := ns.Run("ip", "link", "set", name, "mtu", fmt.Sprint(mtu))
		must(t, err)
		must(t, ns.Up(name))
	}
	v.station = newStation(t, v.there, far)
	return v
}

func (v *veth) link(up bool) error { return ip(v.here, dev, up) }

func (v *veth) remove() error {
	_, err := v.here.Run("ip", "link", "del", dev)
	return err
}
