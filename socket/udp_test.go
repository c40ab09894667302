package socket

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/udp"
	"github.com/millrace/millrace/wire"
)

func (x *world) packets(t *testing.T, s *Stack, network, addr string, o *udp.Options) *UDPConn {
	t.Helper()
	lc := &ListenConfig{UDPOptions: func(to *UDPOptions) {
		if o != nil {
			*to = *o
		}
	}}
	c, err := s.ListenPacketWith(t.Context(), lc, network, addr)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	return c
}

func TestDatagrams(t *testing.T) {
	for _, loops := range []int{1, 2} {
		x := newWorld(t, with{loops: loops})
		b := x.packets(t, x.b, "udp", ":53", nil)
		if b.LocalAddr().String() != "[::]:53" || b.RemoteAddr() != nil {
			t.Errorf("%v, %v", b.LocalAddr(), b.RemoteAddr())
		}
		for _, to := range []string{addrB, addrB6} {
			for i := range 8 { // ports, and so loops
				x.ask(t, b, net.JoinHostPort(to, "53"), fmt.Sprint(to, i))
			}
		}
		_ = b.Close()
		op(t, b.Close(), "close", net.ErrClosed)
		x.empty(t)
	}
}

// ask sends a datagram from a connected socket of a to b, and one back.
func (x *world) ask(t *testing.T, b *UDPConn, to, data string) {
	t.Helper()
	a, err := x.a.Dial("udp", to)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	_ = a.SetDeadline(time.Now().Add(10 * time.Second))
	if n, err := a.Write([]byte(data)); n != len(data) || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	buf := make([]byte, 100)
	n, from, err := b.ReadFrom(buf)
	if err != nil || string(buf[:n]) != data || from.String() != a.LocalAddr().String() {
		t.Fatalf("%q from %v, %v", buf[:n], from, err)
	}
	if _, err := b.WriteTo(append(buf[:n], '!'), from); err != nil {
		t.Error(err)
	}
	if n, err = a.Read(buf); err != nil || string(buf[:n]) != data+"!" {
		t.Errorf("%q, %v", buf[:n], err)
	}
	_, err = a.(*UDPConn).WriteTo([]byte("x"), from)
	op(t, err, "write", net.ErrWriteToConnected)
}

func TestDatagramErrors(t *testing.T) {
	x := newWorld(t, with{})
	a, err := x.a.Dial("udp", addrB+":9")
	if err != nil {
		t.Fatal(err)
	}
	_ = a.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = a.Write([]byte("anybody?"))
	_, err = a.Read(make([]byte, 1))
	op(t, err, "read", syscall.ECONNREFUSED)

	p := x.packets(t, x.a, "udp4", ":0", &udp.Options{DontFragment: true})
	to := func(s string) net.Addr { return net.UDPAddrFromAddrPort(netip.MustParseAddrPort(s)) }
	for _, c := range []struct {
		to   net.Addr
		size int
		is   error
	}{
		{to("192.0.2.1:1"), 1, syscall.ENETUNREACH},
		{to(addrB + ":1"), 1473, syscall.EMSGSIZE},
		{to(addrB + ":1"), 1472, nil},
		{to(addrB + ":0"), 1, syscall.EINVAL},
		{to("198.18.0.255:1"), 1, syscall.EACCES},
		{to("[2001:db8::b]:1"), 1, syscall.ENETUNREACH},
		{&net.TCPAddr{}, 1, syscall.EINVAL},
	} {
		_, err := p.WriteTo(make([]byte, c.size), c.to)
		if c.is == nil && err != nil {
			t.Errorf("%v: %v", c.to, err)
		}
		if c.is != nil {
			op(t, err, "write", c.is)
		}
	}
	_, err = p.Write([]byte("x"))
	op(t, err, "write", syscall.EDESTADDRREQ)
	_, err = x.a.ListenPacket("udp4", p.LocalAddr().String())
	op(t, err, "listen", syscall.EADDRINUSE)
	_ = p.SetWriteDeadline(time.Unix(1, 0))
	_, err = p.WriteTo([]byte("x"), to(addrB+":1"))
	op(t, err, "write", os.ErrDeadlineExceeded)

	got := make(chan error)
	_ = p.SetReadDeadline(time.Time{})
	go func() {
		_, _, err := p.ReadFrom(make([]byte, 1))
		got <- err
	}()
	time.Sleep(5 * time.Millisecond)
	_ = p.Close()
	op(t, <-got, "read", net.ErrClosed)
	_, err = p.WriteTo([]byte("x"), to(addrB+":1"))
	op(t, err, "write", net.ErrClosed)
	_ = a.Close()
	x.empty(t)
}

// TestFragments sends datagrams as large as they get.
func TestFragments(t *testing.T) {
	x := newWorld(t, with{})
	b := x.packets(t, x.b, "udp", ":1", nil)
	a := x.packets(t, x.a, "udp", ":0", nil)
	for _, c := range []struct {
		to   string
		size int
	}{{addrB, 65507}, {addrB6, 65527}, {addrB, 3000}, {addrB6, 3000}} { // the first of each wait for the neighbour
		_ = b.SetReadDeadline(time.Now().Add(5 * time.Second))
		data := bytes.Repeat([]byte("abc"), c.size/3+1)[:c.size]
		if _, err := a.WriteTo(data, net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(c.to), 1))); err != nil {
			t.Error(err)
			continue
		}
		buf := make([]byte, 70000)
		n, _, err := b.ReadFrom(buf)
		if err != nil || !bytes.Equal(buf[:n], data) {
			t.Errorf("%d of %d bytes, %v", n, len(data), err)
		}
	}
}

// control sets an option of the kernel's kind.
func setOption(t *testing.T, c *UDPConn, level, name, v int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var set error
	if err := raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), level, name, v) }); err != nil || set != nil {
		t.Fatal(err, set)
	}
	if raw.Read(nil) == nil || raw.Write(nil) == nil {
		t.Error("a socket that carries nothing says that it does")
	}
}

// TestControlMessages sends with the control messages that x/net makes and reads those that it parses.
func TestControlMessages(t *testing.T) {
	x := newWorld(t, with{})
	b := x.packets(t, x.b, "udp", ":1", nil)
	a := x.packets(t, x.a, "udp", ":0", nil)
	read := func() (data string, oob []byte, flags int) {
		t.Helper()
		buf, o := make([]byte, 100), make([]byte, 256)
		n, on, flags, from, err := b.ReadMsgUDP(buf, o)
		if err != nil || from.Port != a.LocalAddr().(*net.UDPAddr).Port {
			t.Fatal(from, err)
		}
		return string(buf[:n]), o[:on], flags
	}
	to4, to6 := netip.MustParseAddrPort(addrB+":1"), netip.MustParseAddrPort("["+addrB6+"]:1")
	if _, _, err := a.WriteMsgUDPAddrPort([]byte("plain"), nil, to4); err != nil {
		t.Fatal(err)
	}
	if data, oob, _ := read(); data != "plain" || len(oob) != 0 {
		t.Errorf("%q, %x: nothing was asked for", data, oob)
	}
	for _, o := range [][2]int{
		{unix.IPPROTO_IP, unix.IP_RECVTOS},
		{unix.IPPROTO_IP, unix.IP_PKTINFO},
		{unix.IPPROTO_IP, unix.IP_RECVTTL},
		{unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS},
		{unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO},
		{unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT},
	} {
		setOption(t, b, o[0], o[1], 1)
	}
	send4 := append((&ipv4.ControlMessage{TTL: 7, Src: net.ParseIP(addrA).To4(), IfIndex: 1}).Marshal(), tosMessage(unix.IPPROTO_IP, unix.IP_TOS, 0x2a)...)
	if _, _, err := a.WriteMsgUDPAddrPort([]byte("four"), send4, to4); err != nil {
		t.Fatal(err)
	}
	data, oob, _ := read()
	var m4 ipv4.ControlMessage
	if err := m4.Parse(oob); err != nil || data != "four" || m4.TTL == 0 || m4.Dst.String() != addrB || m4.IfIndex != 1 {
		t.Errorf("%q, %+v, %v", data, m4, err)
	}
	if tos := tosOf(oob); tos != 0x2a {
		t.Errorf("TOS %#x", tos)
	}
	send6 := (&ipv6.ControlMessage{HopLimit: 9, TrafficClass: 0x2b, Src: net.ParseIP(addrA6), IfIndex: 1}).Marshal()
	if _, _, err := a.WriteMsgUDPAddrPort([]byte("six"), send6, to6); err != nil {
		t.Fatal(err)
	}
	data, oob, _ = read()
	var m6 ipv6.ControlMessage
	if err := m6.Parse(oob); err != nil || data != "six" || m6.TrafficClass != 0x2b || m6.HopLimit != 9 || m6.Dst.String() != addrB6 || m6.IfIndex != 1 {
		t.Errorf("%q, %+v, %v", data, m6, err)
	}
	for _, bad := range [][]byte{{1}, make([]byte, 16), tosMessage(unix.IPPROTO_IP, 99, 0), tosMessage(unix.IPPROTO_IP, unix.IP_TOS, 300)} {
		_, _, err := a.WriteMsgUDPAddrPort([]byte("x"), bad, to4)
		op(t, err, "write", syscall.EINVAL)
	}
	if _, _, err := a.WriteMsgUDPAddrPort([]byte("too long for what is there"), nil, to4); err != nil {
		t.Fatal(err)
	}
	n, on, flags, _, err := b.ReadMsgUDP(make([]byte, 3), make([]byte, 20))
	if n != 3 || on != 0 || flags != unix.MSG_TRUNC|unix.MSG_CTRUNC || err != nil {
		t.Errorf("%d, %d, %#x, %v", n, on, flags, err)
	}
}

// tosMessage returns a control message with an int.
func tosMessage(level, kind, v int) []byte {
	a := controls{b: make([]byte, 0, 64), fits: true}
	a.int32(int32(level), int32(kind), uint32(v))
	return a.b
}

func TestOptionsOfTheShadowHold(t *testing.T) {
	x := newWorld(t, with{})
	a := x.packets(t, x.a, "udp4", ":0", nil)
	setOption(t, a, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
	setOption(t, a, unix.IPPROTO_IP, unix.IP_TOS, 0x20)
	setOption(t, a, unix.IPPROTO_UDP, unix.UDP_GRO, 1)
	o := a.ends[0].u.Options()
	if !o.DontFragment || o.TOS != 0x20 || !o.GRO {
		t.Errorf("%+v", o)
	}
	if o.TTL != 0 {
		t.Errorf("TTL %d, which nobody has set", o.TTL)
	}
	setOption(t, a, unix.IPPROTO_IP, unix.IP_TTL, 9)
	if o := a.ends[0].u.Options(); o.TTL != 9 || o.TOS != 0x20 {
		t.Errorf("%+v", o)
	}
	b := x.packets(t, x.b, "udp6", ":0", nil)
	setOption(t, b, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, 7)
	setOption(t, b, unix.IPPROTO_IPV6, unix.IPV6_TCLASS, 0xb8)
	setOption(t, b, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
	if o := b.ends[0].u.Options(); o.TTL != 7 || o.TOS != 0xb8 || !o.DontFragment {
		t.Errorf("%+v", o)
	}
	_ = a.SetReadBuffer(100_000)
	if o := a.ends[0].u.Options(); o.ReceiveBuffer != 100_000 {
		t.Errorf("%+v", o)
	}
	_ = a.Close()
	if _, err := a.SyscallConn(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// TestBatches sends many datagrams in one message and reads them in batches, with and without GRO.
func TestBatches(t *testing.T) {
	for _, gro := range []bool{false, true} {
		x := newWorld(t, with{})
		b := x.packets(t, x.b, "udp", ":1", &udp.Options{GRO: gro})
		setOption(t, b, unix.IPPROTO_UDP, unix.UDP_GRO, map[bool]int{true: 1}[gro])
		a := x.packets(t, x.a, "udp", ":0", nil)
		x.ask(t, b, addrB+":1", "know your neighbours")
		data := make([]byte, 20*1000+10)
		for i := range data {
			data[i] = byte(i / 1000)
		}
		seg := make([]byte, 0, 64)
		c := controls{b: seg, fits: true}
		binary.NativeEndian.PutUint16(c.add(unix.IPPROTO_UDP, unix.UDP_SEGMENT, 2), 1000)
		ms := []ipv4.Message{{Buffers: [][]byte{data[:5], data[5:]}, OOB: c.b, Addr: net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addrB + ":1"))}}
		if n, err := a.WriteBatch(ms, 0); n != 1 || err != nil || ms[0].N != len(data) {
			t.Fatal(n, err, ms[0].N)
		}
		got, messages, merged := readBatches(t, b, len(data))
		if !bytes.Equal(got, data) {
			t.Errorf("GRO %v: other bytes", gro)
		}
		if gro != merged || gro != (messages < 21) {
			t.Errorf("GRO %v: %d messages, merged %v", gro, messages, merged)
		}
		if n, err := b.ReadBatch(make([]ipv4.Message, 1), unix.MSG_DONTWAIT); n != 0 || !errors.Is(err, syscall.EAGAIN) {
			t.Errorf("%d, %v", n, err)
		}
		_, _ = a.Close(), b.Close()
		x.empty(t)
	}
}

// readBatches reads n bytes; merged tells whether a control message gave the size of several datagrams.
func readBatches(t *testing.T, c *UDPConn, n int) (got []byte, messages int, merged bool) {
	t.Helper()
	ms := make([]ipv4.Message, 8)
	for i := range ms {
		ms[i] = ipv4.Message{Buffers: [][]byte{make([]byte, 65535)}, OOB: make([]byte, 128)}
	}
	for len(got) < n {
		k, err := c.ReadBatch(ms, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range ms[:k] {
			got = append(got, m.Buffers[0][:m.N]...)
			if m.NN == 0 {
				continue
			}
			h, d, _, err := unix.ParseOneSocketControlMessage(m.OOB[:m.NN])
			merged = merged || err == nil && h.Type == unix.UDP_GRO && binary.NativeEndian.Uint32(d) == 1000
		}
		messages += k
	}
	return got, messages, merged
}

func TestMulticast(t *testing.T) {
	for _, loops := range []int{1, 2} {
		testMulticast(t, with{loops: loops})
	}
}

func testMulticast(t *testing.T, w with) {
	x := newWorld(t, w)
	group := netip.MustParseAddr("239.1.2.3")
	source := netip.MustParseAddr(addrA)
	b := x.packets(t, x.b, "udp4", ":5", nil)
	a := x.packets(t, x.a, "udp4", ":0", &udp.Options{MulticastInterface: 1, NoLoop: true})
	heard := func() bool {
		if _, err := a.WriteToUDPAddrPort([]byte("all"), netip.AddrPortFrom(group, 5)); err != nil {
			t.Fatal(err)
		}
		_ = b.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		_, from, err := b.ReadFromUDPAddrPort(make([]byte, 10))
		return err == nil && from.Addr() == source
	}
	for _, c := range []struct {
		what string
		do   func() error
		want bool
	}{
		{"before", func() error { return nil }, false},
		{"joined", func() error { return b.Join(1, group, netip.Addr{}) }, true},
		{"source blocked", func() error { return b.Block(1, group, source) }, false},
		{"left", func() error { return b.Leave(1, group, netip.Addr{}) }, false},
		{"joined another source", func() error { return b.Join(1, group, netip.MustParseAddr(addrB)) }, false},
		{"joined the source", func() error { return b.Join(1, group, source) }, true},
		{"left the source", func() error { return b.Leave(1, group, source) }, false},
	} {
		if err := c.do(); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		if got := heard(); got != c.want {
			t.Errorf("%s: heard %v", c.what, got)
		}
	}
	op(t, b.Leave(1, group, source), "setsockopt", syscall.EADDRNOTAVAIL)
	op(t, b.Join(1, source, netip.Addr{}), "setsockopt", syscall.EINVAL)
}

func TestBroadcast(t *testing.T) {
	for _, loops := range []int{1, 2} {
		testBroadcast(t, with{loops: loops})
	}
}

func testBroadcast(t *testing.T, w with) {
	x := newWorld(t, w)
	b := x.packets(t, x.b, "udp4", ":5", nil)
	a := x.packets(t, x.a, "udp4", ":0", nil)
	to := netip.MustParseAddrPort("198.18.0.255:5")
	_, err := a.WriteToUDPAddrPort([]byte("x"), to)
	op(t, err, "write", syscall.EACCES)
	_ = a.SetOptions(func(o *udp.Options) { o.Broadcast = true })
	if _, err := a.WriteToUDPAddrPort([]byte("all"), to); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 10)
	if n, _, err := b.ReadFrom(buf); err != nil || string(buf[:n]) != "all" {
		t.Errorf("%q, %v", buf[:n], err)
	}
}

// TestSteering has datagrams of one connection ID meet one socket, wherever they come from.
func TestSteering(t *testing.T) {
	x := newWorld(t, with{loops: 2})
	var all []*UDPConn
	for range 3 {
		all = append(all, x.packets(t, x.b, "udp", ":443", &udp.Options{Share: true}))
	}
	if err := all[0].SetSteering(&udp.Steering{Length: 8}); err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		a := x.packets(t, x.a, "udp", ":0", nil)
		want := all[i%3]
		data := append([]byte{0x40, byte(want.Index())}, make([]byte, 20)...)
		if _, err := a.WriteToUDPAddrPort(data, netip.MustParseAddrPort(addrB+":443")); err != nil {
			t.Fatal(err)
		}
		if n, _, err := want.ReadFrom(make([]byte, 100)); n != len(data) || err != nil {
			t.Errorf("%d: %d bytes, %v", i, n, err)
		}
		_ = a.Close()
	}
}

// TestDatagramCallbacks echoes from the loops.
func TestDatagramCallbacks(t *testing.T) {
	x := newWorld(t, with{loops: 2})
	b := x.packets(t, x.b, "udp", ":7", nil)
	if err := b.OnReady(func(in InnerUDP, ev Events) {
		for {
			l, ok := in.Lease()
			if !ok {
				return
			}
			var m Message
			l.Describe(&m)
			m.N, m.Buffers = 0, [][]byte{l.Payload()}
			if n, err := in.Write([]Message{m}); n != 1 || err != nil {
				t.Error(n, err)
			}
			l.Release()
		}
	}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			a, err := x.a.Dial("udp", addrB+":7")
			if err != nil {
				t.Error(err)
				return
			}
			defer a.Close()
			_ = a.SetDeadline(time.Now().Add(10 * time.Second))
			msg := fmt.Sprint("message ", i)
			_, _ = a.Write([]byte(msg))
			buf := make([]byte, 100)
			if n, err := a.Read(buf); string(buf[:n]) != msg || err != nil {
				t.Errorf("%q, %v", buf[:n], err)
			}
		})
	}
	within(t, 15*time.Second, "echo", wg.Wait)
}

// TestDatagramPoller waits for two sockets.
func TestDatagramPoller(t *testing.T) {
	x := newWorld(t, with{loops: 2})
	p := x.b.NewPoller()
	var c [2]*UDPConn
	for i := range c {
		c[i] = x.packets(t, x.b, "udp", fmt.Sprint(":", i+1), nil)
		if err := p.Add(c[i], Interest{Events: Readable, Data: i}); err != nil {
			t.Fatal(err)
		}
	}
	a := x.packets(t, x.a, "udp", ":0", nil)
	for i := range 10 {
		to := i % 2
		_, _ = a.WriteToUDPAddrPort([]byte("x"), netip.MustParseAddrPort(fmt.Sprint(addrB, ":", to+1)))
		ev := make([]Event, 4)
		n, err := p.Wait(ev, 5*time.Second)
		if n != 1 || err != nil || ev[0].Data != to {
			t.Fatal(n, err, ev[0])
		}
		if n, _, err := c[to].ReadFrom(make([]byte, 10)); n != 1 || err != nil {
			t.Error(n, err)
		}
	}
	if n, err := p.Wait(make([]Event, 1), 0); n != 0 || err != nil {
		t.Error(n, err)
	}
}

// TestDatagramsAllocateNothing: a round trip by the calls that have no net.Addr.
func TestDatagramsAllocateNothing(t *testing.T) {
	x := newWorld(t, with{})
	b := x.packets(t, x.b, "udp", ":1", nil)
	_ = b.SetReadDeadline(time.Time{})
	go func() {
		buf := make([]byte, 2000)
		for {
			n, from, err := b.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = b.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
	a := x.packets(t, x.a, "udp", ":0", nil)
	buf := make([]byte, 2000)
	to := netip.MustParseAddrPort(addrB + ":1")
	trip := func() {
		_, _ = a.WriteToUDPAddrPort(buf[:100], to)
		if _, _, err := a.ReadFromUDPAddrPort(buf); err != nil {
			t.Error(err)
		}
	}
	for range 100 {
		trip()
	}
	if n := testing.AllocsPerRun(1000, trip); n >= 0.5 && !raceEnabled {
		t.Errorf("%v allocations in a round trip", n)
	}
}

// FuzzControl parses any bytes as control messages; what parses, and is made again, says the same.
func FuzzControl(f *testing.F) {
	f.Add(tosMessage(unix.IPPROTO_IP, unix.IP_TOS, 3), uint8(1), uint8(2), true)
	f.Add([]byte{1}, uint8(1), uint8(2), true) // less than a header
	f.Add((&ipv6.ControlMessage{HopLimit: 9, TrafficClass: 3, IfIndex: 1}).Marshal(), uint8(0), uint8(0), false)
	f.Fuzz(func(t *testing.T, oob []byte, tos, ttl uint8, v4 bool) {
		var m Message
		_ = parseControl(oob, &m)
		in := Message{TOS: tos, TTL: ttl, Interface: 5, Remote: wire.Addr{1}, Local: wire.Addr{2}}
		if v4 {
			in.Remote, in.Local = wire.AddrFrom4([4]byte{1}), wire.AddrFrom4([4]byte{2})
		}
		room := make([]byte, 0, len(oob))
		b, fits := appendControl(room, ^wants(wantGRO), &in)
		if len(b) > cap(room) {
			t.Fatal("more than fits")
		}
		var out Message
		if err := parseControl(b, &out); err != nil {
			t.Fatalf("%x: %v", b, err)
		}
		if fits && (out.TOS != tos || out.TTL != ttl || out.Interface != 5 || out.Local != in.Local) {
			t.Fatalf("%+v became %+v", in, out)
		}
	})
}

// tosOf returns the TOS or traffic class that control messages carry.
func tosOf(oob []byte) uint8 {
	var m Message
	_ = parseControl(oob, &m)
	return m.TOS
}
