package kernelflows_test

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/l4/fastpath"
	"github.com/millrace/millrace/l4/kernelflows"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/device"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/stack"
	"github.com/millrace/millrace/wire"
)

// rig is a client, a gateway whose devices a driver has, and a backend, each in a namespace. The gateway has no address
// and no loop: what comes out of it is the programs' work.
type rig struct {
	t                   testing.TB
	client, gw, backend *testnet.Namespace
	table               *kernelflows.Table
	devices             [2]*device.Device
	pool                *ring.Pool
	arena               *ring.Arena
	macs                map[string][6]byte
}

var addresses = map[int]struct{ client, vip, snat, backend string }{
	4: {"198.18.0.2", "198.18.1.1", "198.18.2.1", "198.18.2.11"},
	6: {"2001:db8::2", "2001:db8:1::1", "2001:db8:2::1", "2001:db8:2::11"},
}

const (
	vipPort, sourcePort, backendPort = 53, 4000, 5353
)

func newRig(t testing.TB, driver device.Driver) *rig {
	t.Helper()
	n := testnet.For(t, "mr-kflows")
	r := &rig{t: t, client: n.Namespace("c"), gw: n.Namespace("g"), backend: n.Namespace("b"), macs: map[string][6]byte{}}
	must(t, n.Link(r.client, "eth0", r.gw, "gw0"))
	must(t, n.Link(r.backend, "eth0", r.gw, "gw1"))
	must(t, r.client.Up("eth0", "198.18.0.2/24", "2001:db8::2/64"))
	must(t, r.backend.Up("eth0", "198.18.2.11/24", "2001:db8:2::11/64"))
	for _, name := range []string{"gw0", "gw1"} {
		must(t, r.gw.Sysctl("net.ipv6.conf."+name+".disable_ipv6", "1"))
		must(t, r.gw.Up(name))
	}
	for name, at := range map[string]struct {
		ns  *testnet.Namespace
		dev string
	}{"client": {r.client, "eth0"}, "gw0": {r.gw, "gw0"}, "gw1": {r.gw, "gw1"}, "backend": {r.backend, "eth0"}} {
		must(t, at.ns.Do(func() error {
			l, err := netlink.LinkByName(at.dev)
			if err == nil {
				r.macs[name] = [6]byte(l.Attrs().HardwareAddr)
			}
			return err
		}))
	}
	for _, a := range addresses {
		r.neighbor(r.client, a.vip, "gw0")
		r.neighbor(r.backend, a.snat, "gw1")
		bits := "/32"
		if strings.Contains(a.vip, ":") {
			bits = "/128"
		}
		_, err := r.client.Run("ip", "route", "add", a.vip+bits, "dev", "eth0")
		must(t, err)
	}
	r.open(driver)
	return r
}

func (r *rig) neighbor(ns *testnet.Namespace, addr, of string) {
	mac := r.macs[of]
	_, err := ns.Run("ip", "neigh", "replace", addr, "lladdr", net.HardwareAddr(mac[:]).String(), "dev", "eth0", "nud", "permanent")
	must(r.t, err)
}

// open opens the devices, and attaches the programs.
func (r *rig) open(driver device.Driver) {
	t := r.t
	t.Helper()
	var err error
	names := []string{"gw0", "gw1"}
	configs := make([]device.Config, 2)
	for i, name := range names {
		configs[i] = device.Config{Name: name, Driver: driver, Rules: r.rules()}
	}
	var pools []*ring.Pool
	must(t, r.gw.Do(func() error { r.arena, pools, err = device.NewArena(1, configs...); return err }))
	r.pool = pools[0]
	r.table, err = kernelflows.Open(kernelflows.Options{Loops: 1, Slots: 16, Now: stack.Now})
	must(t, err)
	hook := kernelflows.HookXDP
	if driver == device.AFPacket {
		hook = kernelflows.HookSocket
	}
	for i := range configs {
		configs[i].Pools = pools
		must(t, r.gw.Do(func() error {
			if r.devices[i], err = device.Open(configs[i]); err != nil {
				return err
			}
			l, err := netlink.LinkByName(names[i])
			if err != nil {
				return err
			}
			p, err := r.table.Attach(i, l.Attrs().Index, hook)
			if err != nil {
				return err
			}
			return r.devices[i].SetPrefilter(p)
		}))
	}
	t.Cleanup(func() {
		for _, d := range r.devices {
			must(t, d.SetPrefilter(nil))
		}
		must(t, r.table.Close())
		for _, d := range r.devices {
			must(t, d.Close())
		}
		must(t, r.arena.Close())
	})
}

func (r *rig) rules() (out []pmd.Rule) {
	for _, a := range addresses {
		out = append(out, pmd.Rule{Addr: netip.MustParseAddr(a.vip)}, pmd.Rule{Addr: netip.MustParseAddr(a.snat)})
	}
	return out
}

// flow returns the flow of a client's port.
func (r *rig) flow(family int, proto uint8, port uint16) *fastpath.Flow {
	a := addresses[family]
	at := func(s string) [16]byte { return netip.MustParseAddr(s).As16() }
	client, vip, snat, backend := at(a.client), at(a.vip), at(a.snat), at(a.backend)
	f := &fastpath.Flow{Proto: proto, Directions: [2]fastpath.Direction{{
		Dev: 0, Src: client, Dst: vip, SrcPort: port, DstPort: vipPort, From: r.macs["client"], To: r.macs["gw0"],
		OutDev: 1, NewSrc: snat, NewDst: backend, NewSrcPort: sourcePort, NewDstPort: backendPort, NextHop: r.macs["backend"], OutMAC: r.macs["gw1"],
	}, {
		Dev: 1, Src: backend, Dst: snat, SrcPort: backendPort, DstPort: sourcePort, To: r.macs["gw1"],
		OutDev: 0, NewSrc: vip, NewDst: client, NewSrcPort: vipPort, NewDstPort: port, NextHop: r.macs["client"], OutMAC: r.macs["gw0"],
	}}}
	for i := range f.Directions {
		d := &f.Directions[i]
		d.MaxLen = mtu
		d.L3Delta = wire.AddDiff(wire.Diff128(d.Src, d.NewSrc), wire.Diff128(d.Dst, d.NewDst))
		d.L4Delta = wire.AddDiff(d.L3Delta, wire.Diff32(uint32(d.SrcPort)<<16|uint32(d.DstPort), uint32(d.NewSrcPort)<<16|uint32(d.NewDstPort)))
	}
	return f
}

// received returns how many packets the loop of a device would have.
func (r *rig) received(dev int) (n int) {
	b := packet.NewBatch(r.arena.View(), 64)
	for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); {
		got, err := r.devices[dev].Queues[0].Rx(stack.Now(), b)
		must(r.t, err)
		n += got
		for i := range b.D {
			r.pool.Put(b.D[i].Off)
		}
		b.D = b.D[:0]
	}
	return n
}

// Datagrams of an entered flow pass without the driver, also large ones; others come to it, and those of a flow that has
// left.
func TestOnlyWhatIsNotForwardedComesToTheDriver(t *testing.T) {
	for _, c := range []struct {
		driver device.Driver
		peers  bool // the packets are given to the other end of a veth pair, or sent by this one, which fills in checksums
	}{{device.AFPacket, true}, {device.AFPacket, false}, {device.AFXDP, true}} {
		t.Run(fmt.Sprintf("%s, peers %v", c.driver, c.peers), func(t *testing.T) {
			r := newRig(t, c.driver)
			if !c.peers {
				r.table.ForgetPeers()
				must(t, r.gw.NoOffload("gw0"))
				must(t, r.gw.NoOffload("gw1"))
			}
			for family := range addresses {
				r.exchange(family)
			}
			r.tagged()
		})
	}
}

func (r *rig) exchange(family int) {
	t, a, l := r.t, addresses[family], r.table.Loop(0)
	t.Helper()
	var server, c net.PacketConn
	must(t, r.backend.Do(func() (err error) {
		server, err = net.ListenPacket("udp", net.JoinHostPort(a.backend, "5353"))
		return err
	}))
	defer server.Close()
	must(t, r.client.Do(func() (err error) {
		c, err = net.ListenPacket("udp", net.JoinHostPort(a.client, "3000"))
		return err
	}))
	defer c.Close()
	slot, ok := l.Enter(r.flow(family, wire.ProtoUDP, 3000))
	if !ok {
		t.Fatal("the flow was not entered")
	}
	must(t, l.Flush(stack.Now()))
	r.received(0)
	vip := net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(a.vip), vipPort))
	const rounds = 20
	buf := make([]byte, 65536)
	for range rounds {
		_, err := c.WriteTo([]byte("question"), vip)
		must(t, err)
		must(t, server.SetDeadline(time.Now().Add(20*time.Second)))
		n, from, err := server.ReadFrom(buf)
		must(t, err)
		if want := net.JoinHostPort(a.snat, "4000"); from.String() != want || string(buf[:n]) != "question" {
			t.Fatalf("the backend has %q from %v, want it from %s", buf[:n], from, want)
		}
		_, err = server.WriteTo([]byte("an answer"), from)
		must(t, err)
		must(t, c.SetDeadline(time.Now().Add(20*time.Second)))
		n, from, err = c.ReadFrom(buf)
		must(t, err)
		if from.String() != vip.String() || string(buf[:n]) != "an answer" {
			t.Fatalf("the client has %q from %v", buf[:n], from)
		}
	}
	if tr := l.Read(slot); tr.Packets != [2]uint64{rounds, rounds} || stack.Now().Sub(tr.Last[0]).Abs() > 20*time.Second {
		t.Errorf("IPv%d: counted %+v, want %d packets on both sides", family, tr, rounds)
	}
	r.segmented(c, server, vip)
	if n := r.received(0) + r.received(1); n != 0 {
		t.Errorf("IPv%d: %d packets came to the driver", family, n)
	}
	l.Leave(slot)
	must(t, l.Flush(stack.Now()))
	_, err := c.WriteTo([]byte("question"), vip)
	must(t, err)
	if n := r.received(0); n != 1 {
		t.Errorf("IPv%d: %d packets came to the driver after the flow had left, want 1", family, n)
	}
}

// tagged sends a datagram of an entered flow with a VLAN tag: it is the loop's.
func (r *rig) tagged() {
	t, l := r.t, r.table.Loop(0)
	t.Helper()
	slot, ok := l.Enter(r.flow(4, wire.ProtoUDP, 3000))
	if !ok {
		t.Fatal("the flow was not entered")
	}
	must(t, l.Flush(stack.Now()))
	a := addresses[4]
	s := seg{
		from: r.macs["client"], to: r.macs["gw0"], proto: wire.ProtoUDP, ttl: 64, payload: 20,
		src: netip.MustParseAddrPort(a.client + ":3000"), dst: netip.MustParseAddrPort(a.vip + ":53"),
	}
	frame := s.bytes()
	r.sendFrame(append(append(bytes.Clone(frame[:12]), 0x81, 0, 0, 7), frame[12:]...))
	if n := r.received(0); n != 1 {
		t.Errorf("%d tagged packets came to the driver, want 1", n)
	}
	r.sendFrame(frame)
	if n := r.received(0); n != 0 || l.Leave(slot).Packets[0] != 1 {
		t.Errorf("%d packets without a tag came to the driver, want none", n)
	}
}

// sendFrame sends a frame from the client.
func (r *rig) sendFrame(frame []byte) {
	r.t.Helper()
	must(r.t, r.client.Do(func() error {
		in, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: in.Index})
	}))
}

// segmented sends a large packet of 8 datagrams (UDP_SEGMENT), whose checksums the device makes.
func (r *rig) segmented(from, to net.PacketConn, dst net.Addr) {
	t := r.t
	t.Helper()
	const size, count = 1000, 8
	raw, err := from.(syscall.Conn).SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, size) }))
	must(t, err)
	_, err = from.WriteTo(make([]byte, size*count), dst)
	must(t, err)
	for range count {
		must(t, to.SetDeadline(time.Now().Add(20*time.Second)))
		n, _, err := to.ReadFrom(make([]byte, 65536))
		if err != nil || n != size {
			s, _ := r.table.Stats()
			t.Fatalf("the backend reads %d bytes: %v; the programs saw %v", n, err, s.Packets)
		}
	}
	must(t, raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, 0) }))
	must(t, err)
}
