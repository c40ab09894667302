package socket

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/wire"
)

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
	x := newTestbed(t, testbedConfig{})
	b := x.listenPacket(t, x.b, "udp", ":1", nil)
	a := x.listenPacket(t, x.a, "udp", ":0", nil)
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
		checkOpError(t, err, "write", syscall.EINVAL)
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
	a := cmsgBuilder{b: make([]byte, 0, 64), fits: true}
	a.int32(int32(level), int32(kind), uint32(v))
	return a.b
}

func TestSetsockoptOfSyscallConn(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	a := x.listenPacket(t, x.a, "udp4", ":0", nil)
	setOption(t, a, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
	setOption(t, a, unix.IPPROTO_IP, unix.IP_TOS, 0x20)
	setOption(t, a, unix.IPPROTO_UDP, unix.UDP_GRO, 1)
	o := a.shards[0].u.Options()
	if !o.DontFragment || o.TOS != 0x20 || !o.GRO {
		t.Errorf("%+v", o)
	}
	if o.TTL != 0 {
		t.Errorf("TTL %d, which nobody has set", o.TTL)
	}
	setOption(t, a, unix.IPPROTO_IP, unix.IP_TTL, 9)
	if o := a.shards[0].u.Options(); o.TTL != 9 || o.TOS != 0x20 {
		t.Errorf("%+v", o)
	}
	b := x.listenPacket(t, x.b, "udp6", ":0", nil)
	setOption(t, b, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, 7)
	setOption(t, b, unix.IPPROTO_IPV6, unix.IPV6_TCLASS, 0xb8)
	setOption(t, b, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
	if o := b.shards[0].u.Options(); o.TTL != 7 || o.TOS != 0xb8 || !o.DontFragment {
		t.Errorf("%+v", o)
	}
	_ = a.SetReadBuffer(100_000)
	if o := a.shards[0].u.Options(); o.ReceiveBuffer != 100_000 {
		t.Errorf("%+v", o)
	}
	_ = a.Close()
	if _, err := a.SyscallConn(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
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
		b, fits := appendControl(room, ^cmsgSet(cmsgGRO), &in)
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
