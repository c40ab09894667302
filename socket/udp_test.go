package socket

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/udp"
)

func (x *testbed) listenPacket(t *testing.T, s *Stack, network, addr string, o *udp.Options) *UDPConn {
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
		x := newTestbed(t, testbedConfig{loops: loops})
		b := x.listenPacket(t, x.b, "udp", ":53", nil)
		if b.LocalAddr().String() != "[::]:53" || b.RemoteAddr() != nil {
			t.Errorf("%v, %v", b.LocalAddr(), b.RemoteAddr())
		}
		for _, to := range []string{addrB, addrB6} {
			for i := range 8 { // ports, and so loops
				x.ask(t, b, net.JoinHostPort(to, "53"), fmt.Sprint(to, i))
			}
		}
		_ = b.Close()
		checkOpError(t, b.Close(), "close", net.ErrClosed)
		x.checkEmpty(t)
	}
}

// ask sends a datagram from a connected socket of a to b, and one back.
func (x *testbed) ask(t *testing.T, b *UDPConn, to, data string) {
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
	checkOpError(t, err, "write", net.ErrWriteToConnected)
}

func TestDatagramErrors(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	a, err := x.a.Dial("udp", addrB+":9")
	if err != nil {
		t.Fatal(err)
	}
	_ = a.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = a.Write([]byte("request"))
	_, err = a.Read(make([]byte, 1))
	checkOpError(t, err, "read", syscall.ECONNREFUSED)

	p := x.listenPacket(t, x.a, "udp4", ":0", &udp.Options{DontFragment: true})
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
			checkOpError(t, err, "write", c.is)
		}
	}
	_, err = p.Write([]byte("x"))
	checkOpError(t, err, "write", syscall.EDESTADDRREQ)
	_, err = x.a.ListenPacket("udp4", p.LocalAddr().String())
	checkOpError(t, err, "listen", syscall.EADDRINUSE)
	_ = p.SetWriteDeadline(time.Unix(1, 0))
	_, err = p.WriteTo([]byte("x"), to(addrB+":1"))
	checkOpError(t, err, "write", os.ErrDeadlineExceeded)

	got := make(chan error)
	_ = p.SetReadDeadline(time.Time{})
	go func() {
		_, _, err := p.ReadFrom(make([]byte, 1))
		got <- err
	}()
	time.Sleep(5 * time.Millisecond)
	_ = p.Close()
	checkOpError(t, <-got, "read", net.ErrClosed)
	_, err = p.WriteTo([]byte("x"), to(addrB+":1"))
	checkOpError(t, err, "write", net.ErrClosed)
	_ = a.Close()
	x.checkEmpty(t)
}

// TestFragments sends datagrams as large as they get.
func TestFragments(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	b := x.listenPacket(t, x.b, "udp", ":1", nil)
	a := x.listenPacket(t, x.a, "udp", ":0", nil)
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

// TestBatches sends many datagrams in one message and reads them in batches, with and without GRO.
func TestBatches(t *testing.T) {
	for _, gro := range []bool{false, true} {
		x := newTestbed(t, testbedConfig{})
		b := x.listenPacket(t, x.b, "udp", ":1", &udp.Options{GRO: gro})
		setOption(t, b, unix.IPPROTO_UDP, unix.UDP_GRO, map[bool]int{true: 1}[gro])
		a := x.listenPacket(t, x.a, "udp", ":0", nil)
		x.ask(t, b, addrB+":1", "know your neighbours")
		data := make([]byte, 20*1000+10)
		for i := range data {
			data[i] = byte(i / 1000)
		}
		seg := make([]byte, 0, 64)
		c := cmsgBuilder{b: seg, fits: true}
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
		x.checkEmpty(t)
	}
}

// readBatches reads n bytes; merged reports whether a control message gave the size of several datagrams.
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

// TestSteering sends datagrams of one connection ID from several ports, and expects them at one socket.
func TestSteering(t *testing.T) {
	x := newTestbed(t, testbedConfig{loops: 2})
	var all []*UDPConn
	for range 3 {
		all = append(all, x.listenPacket(t, x.b, "udp", ":443", &udp.Options{Share: true}))
	}
	if err := all[0].SetSteering(&udp.Steering{Length: 8}); err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		a := x.listenPacket(t, x.a, "udp", ":0", nil)
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

// TestDatagramAllocs: a round trip by the calls that have no net.Addr.
func TestDatagramAllocs(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	b := x.listenPacket(t, x.b, "udp", ":1", nil)
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
	a := x.listenPacket(t, x.a, "udp", ":0", nil)
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

// tosOf returns the TOS or traffic class that control messages carry.
func tosOf(oob []byte) uint8 {
	var m Message
	_ = parseControl(oob, &m)
	return m.TOS
}

// TestMessagesToSeveralPeers sends one batch to two sockets, and reads the source address of each message.
func TestMessagesToSeveralPeers(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	a := x.listenPacket(t, x.a, "udp", ":0", nil)
	var to [2]*UDPConn
	msgs := make([]Message, 2)
	for i, addr := range []string{addrB, addrB6} {
		to[i] = x.listenPacket(t, x.b, "udp", net.JoinHostPort(addr, "0"), nil)
		msgs[i].Buffers = [][]byte{[]byte(addr)}
		msgs[i].SetPeer(to[i].LocalAddr().(*net.UDPAddr).AddrPort())
	}
	if n, err := a.WriteMessages(msgs); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	for i, from := range []string{addrA, addrA6} {
		got := []Message{{Buffers: [][]byte{make([]byte, 100)}}}
		n, err := to[i].ReadMessages(got)
		if p := got[0].Peer(); n != 1 || err != nil || p.Addr().String() != from || int(p.Port()) != a.local.Load().Port {
			t.Errorf("%d messages from %v, %v, want one from %s", n, p, err, from)
		}
	}
}
