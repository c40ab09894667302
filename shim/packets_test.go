package shim

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/socket"
)

// sendTo is sendto(2) of the library.
func (p *program) sendTo(to string, b []byte) error {
	return p.sendDatagram(datagram{remote: netip.MustParseAddrPort(to)}, b)
}

func (p *program) sendDatagram(d datagram, b []byte) error {
	out := make([]byte, datagramSize+len(b))
	d.encode(out)
	copy(out[datagramSize:], b)
	_, err := unix.SendmsgN(p.fd, out, nil, nil, unix.MSG_NOSIGNAL)
	return err
}

// recvFrom is recvfrom(2) of the library.
func (p *program) recvFrom() (datagram, []byte, error) {
	b := make([]byte, packetSize)
	n, err := recv(p.fd, b)
	if err != nil {
		return datagram{}, nil, err
	}
	if n < datagramSize {
		return datagram{}, nil, errors.New("no header")
	}
	d, err := decodeDatagram(b)
	return d, b[datagramSize:n], err
}

func (b *bed) udpPeer(t testing.TB) (net.PacketConn, string) {
	t.Helper()
	c, err := b.peer.ListenPacket("udp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, netip.AddrPortFrom(netip.MustParseAddr(peerAddr), c.LocalAddr().(*net.UDPAddr).AddrPort().Port()).String()
}

func TestDatagrams(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	for _, v6 := range []bool{false, true} {
		peer, to := b.udpPeer(t)
		if v6 {
			to = "[::ffff:" + to[:len(peerAddr)] + "]" + to[len(peerAddr):]
		}
		p := c.socket(unix.SOCK_SEQPACKET, v6)
		// Sending binds.
		for _, size := range []int{5, 0, 1472, 9000, 60000} {
			if err := p.sendTo(to, make([]byte, size)); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, packetSize)
			n, from, err := peer.ReadFrom(buf)
			if err != nil || n != size {
				t.Fatalf("%d of %d bytes, %v", n, size, err)
			}
			if _, err := peer.WriteTo(buf[:n], from); err != nil {
				t.Fatal(err)
			}
			d, got, err := p.recvFrom()
			if err != nil || len(got) != size {
				t.Fatalf("%+v, %d of %d bytes, %v", d, len(got), size, err)
			}
			if d.remote.Addr().Unmap().String() != peerAddr || d.local.Addr().Unmap().String() != nodeAddr || d.flags != 0 {
				t.Errorf("header %+v", d)
			}
		}
		names := p.ask(request{op: opNames}, p.fd)
		if names.local.Port() == 0 || names.remote.IsValid() || names.local.Addr().Is4() == v6 {
			t.Errorf("names %+v", names)
		}
		p.close()
	}
	until(t, "the sockets are released", func() bool { return b.Stats().Sockets == 0 })
}

func TestConnectedDatagrams(t *testing.T) {
	b := newBed(t, nil)
	peer, to := b.udpPeer(t)
	p := b.dial(t).socket(unix.SOCK_SEQPACKET, false)
	r := p.ask(request{op: opConnect, addr: netip.MustParseAddrPort(to)}, p.fd)
	if r.errno != 0 || r.remote.String() != to || r.local.Addr().String() != nodeAddr {
		t.Fatalf("%+v", r)
	}
	if mark, err := unix.GetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_PRIORITY); err != nil || mark != markUDP4Connected {
		t.Errorf("mark %d, %v", mark, err)
	}
	for range 50 {
		if err := p.write([]byte("question")); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 100)
		n, from, err := peer.ReadFrom(buf)
		if err != nil || string(buf[:n]) != "question" || from.String() != r.local.String() {
			t.Fatalf("%q from %v, %v", buf[:n], from, err)
		}
		if _, err := peer.WriteTo([]byte("answer"), from); err != nil {
			t.Fatal(err)
		}
		if n, err := p.read(buf); err != nil || string(buf[:n]) != "answer" {
			t.Fatalf("%q, %v", buf[:n], err)
		}
	}
	// ICMP: port unreachable.
	peer.Close()
	if err := p.write([]byte("question")); err != nil {
		t.Fatal(err)
	}
	until(t, "SO_ERROR", func() bool { return p.soError() == syscall.ECONNREFUSED })
	if p.soError() != 0 {
		t.Error("SO_ERROR stays")
	}
}

func TestControlMessages(t *testing.T) {
	b := newBed(t, nil)
	peer, to := b.udpPeer(t)
	p := b.dial(t).socket(unix.SOCK_SEQPACKET, false)
	for _, o := range []int{unix.IP_PKTINFO, unix.IP_RECVTTL, unix.IP_RECVTOS} {
		if err := p.setInt(unix.IPPROTO_IP, o, 1); err != nil {
			t.Fatal(err)
		}
	}
	d := datagram{remote: netip.MustParseAddrPort(to), local: netip.MustParseAddrPort(nodeAddr + ":0"), tos: 0x20, hopLimit: 9}
	if err := p.sendDatagram(d, []byte("x")); err != nil {
		t.Fatal(err)
	}
	_, from, err := peer.ReadFrom(make([]byte, 10))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := peer.WriteTo([]byte("y"), from); err != nil {
		t.Fatal(err)
	}
	got, _, err := p.recvFrom()
	if err != nil || got.flags != wantPktInfo|wantTOS|wantHopLimit || got.iface == 0 || got.hopLimit != 64 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestUnreadDatagrams: a program that does not read loses datagrams, and gets those that come later.
func TestUnreadDatagrams(t *testing.T) {
	b := newBed(t, nil)
	peer, to := b.udpPeer(t)
	p := b.dial(t).socket(unix.SOCK_SEQPACKET, false)
	if err := p.sendTo(to, []byte("x")); err != nil {
		t.Fatal(err)
	}
	_, from, err := peer.ReadFrom(make([]byte, 10))
	if err != nil {
		t.Fatal(err)
	}
	const count = 5000
	for i := range count {
		if _, err := peer.WriteTo([]byte{byte(i), byte(i >> 8), 999: 0}, from); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "all were sent", func() bool { return b.Stats().DatagramsPassed > 50 })
	seen, last := 0, -1
	for {
		if p.poll(unix.POLLIN, limit/10) == 0 {
			break
		}
		_, got, err := p.recvFrom()
		if err != nil {
			t.Fatal(err)
		}
		if n := int(got[0]) | int(got[1])<<8; n <= last {
			t.Fatalf("datagram %d after %d", n, last)
		} else {
			last = n
		}
		seen++
	}
	t.Logf("%d of %d datagrams", seen, count)
	if seen < 100 {
		t.Errorf("%d datagrams", seen)
	}
	if _, err := peer.WriteTo([]byte{1, 1}, from); err != nil {
		t.Fatal(err)
	}
	if _, got, err := p.recvFrom(); err != nil || len(got) != 2 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestResolve(t *testing.T) {
	b := newBed(t, func(c *Config) {
		c.Lookup = func(_ context.Context, name string) ([]netip.Addr, error) {
			switch name {
			case "host":
				return []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}, nil
			case "many":
				return make([]netip.Addr, 0, 20), nil
			case "none":
				return nil, &net.DNSError{IsNotFound: true}
			}
			return nil, &net.DNSError{IsTimeout: true}
		}
	})
	c := b.dial(t)
	for _, x := range []struct {
		name   string
		family int
		want   int
		errno  syscall.Errno
	}{{"host", 0, 2, 0}, {"host", unix.AF_INET, 1, 0}, {"host", unix.AF_INET6, 1, 0}, {"none", 0, 0, syscall.ENOENT}, {"x", 0, 0, syscall.EAGAIN}, {"host", 77, 0, syscall.EAFNOSUPPORT}} {
		r := c.ask(request{op: opResolve, arg: int32(x.family), value: []byte(x.name)}, -1)
		if r.errno != x.errno || len(r.value) != x.want*addrSize {
			t.Errorf("%+v: %v, %d bytes", x, r.errno, len(r.value))
		}
		if x.family == unix.AF_INET6 {
			if a, _, err := decodeAddr(r.value); err != nil || a.Addr().String() != "2001:db8::1" {
				t.Errorf("%v, %v", a, err)
			}
		}
	}
}

// TestBoundThenConnected: what waits in the program's socket loses its header, what is of others is dropped, and
// the socket can get another peer, or none.
func TestBoundThenConnected(t *testing.T) {
	b := newBed(t, nil)
	one, toOne := b.udpPeer(t)
	two, toTwo := b.udpPeer(t)
	p := b.dial(t).socket(unix.SOCK_SEQPACKET, false)
	r := p.ask(request{op: opBind, addr: netip.MustParseAddrPort("0.0.0.0:0")}, p.fd)
	if r.errno != 0 || r.local.Port() == 0 {
		t.Fatalf("%+v", r)
	}
	to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(nodeAddr), r.local.Port()))
	for i, c := range []net.PacketConn{two, one, two, one} {
		if _, err := c.WriteTo([]byte{byte(i)}, to); err != nil {
			t.Fatal(err)
		}
		until(t, "it has come", func() bool { return b.Stats().DatagramsPassed == uint64(i+1) })
	}
	connect := func(to string) reply {
		var a netip.AddrPort
		if to != "" {
			a = netip.MustParseAddrPort(to)
		}
		return p.ask(request{op: opConnect, addr: a}, p.fd)
	}
	if c := connect(toOne); c.errno != 0 || c.local.Addr().String() != nodeAddr || c.local.Port() != r.local.Port() || c.remote.String() != toOne {
		t.Fatalf("%+v", c)
	}
	buf := make([]byte, 100)
	for _, want := range []byte{1, 3} {
		if n, err := p.read(buf); err != nil || n != 1 || buf[0] != want {
			t.Fatalf("%v, %v; want %d", buf[:max(n, 0)], err, want)
		}
	}
	if err := p.write([]byte("to one")); err != nil {
		t.Fatal(err)
	}
	if n, from, err := one.ReadFrom(buf); err != nil || string(buf[:n]) != "to one" || from.String() != to.String() {
		t.Errorf("%q from %v, %v", buf[:n], from, err)
	}
	if c := connect(toTwo); c.errno != 0 {
		t.Fatal(c.errno)
	}
	if err := p.write([]byte("to two")); err != nil {
		t.Fatal(err)
	}
	if n, _, err := two.ReadFrom(buf); err != nil || string(buf[:n]) != "to two" {
		t.Errorf("%q, %v", buf[:n], err)
	}
	if c := connect(""); c.errno != 0 || c.remote.IsValid() {
		t.Fatalf("%+v", c)
	}
	if mark, err := unix.GetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_PRIORITY); err != nil || mark != markInet {
		t.Errorf("mark %d, %v", mark, err)
	}
	if err := p.sendTo(toOne, []byte("again")); err != nil {
		t.Fatal(err)
	}
	n, from, err := one.ReadFrom(buf) // from a new port: the program has chosen none
	if err != nil || string(buf[:n]) != "again" {
		t.Fatalf("%q, %v", buf[:n], err)
	}
	if _, err := two.WriteTo([]byte("from two"), from); err != nil {
		t.Fatal(err)
	}
	if d, got, err := p.recvFrom(); err != nil || d.remote.String() != toTwo || string(got) != "from two" {
		t.Errorf("%+v, %q, %v", d, got, err)
	}
}

// TestSendAndClose sends the datagrams of a socket that was neither bound nor is open any more: they arrive, in order.
func TestSendAndClose(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	peer, to := b.udpPeer(t)
	for i := range 300 {
		p := c.socket(unix.SOCK_SEQPACKET, false)
		for j := range i % 4 {
			if err := p.sendTo(to, []byte{byte(i), byte(j)}); err != nil {
				t.Fatal(err)
			}
		}
		p.close()
		for j := range i % 4 {
			buf := make([]byte, 100)
			_ = peer.SetReadDeadline(time.Now().Add(limit))
			if n, _, err := peer.ReadFrom(buf); err != nil || n != 2 || buf[0] != byte(i) || buf[1] != byte(j) {
				t.Fatalf("socket %d, datagram %d: %v, %v", i, j, buf[:n], err)
			}
		}
	}
	until(t, "the sockets are released", func() bool { return b.Stats().Sockets == 0 })
}

// TestDatagramsWithin passes datagrams between two programs on one stack, with pauses in which the loop falls asleep.
func TestDatagramsWithin(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	server := c.socket(unix.SOCK_SEQPACKET, false)
	r := server.ask(request{op: opBind, addr: netip.MustParseAddrPort("127.0.0.1:0")}, server.fd)
	if r.errno != 0 {
		t.Fatal(r.errno)
	}
	for i := range 300 {
		client := c.socket(unix.SOCK_SEQPACKET, false)
		for j := range 3 {
			if err := client.sendTo(r.local.String(), []byte{byte(i), byte(j)}); err != nil {
				t.Fatal(err)
			}
			if server.poll(unix.POLLIN, 5*time.Second) == 0 {
				t.Fatalf("datagram %d of client %d did not come: %+v", j, i, b.Stats())
			}
			d, got, err := server.recvFrom()
			if err != nil || len(got) != 2 || got[0] != byte(i) || got[1] != byte(j) {
				t.Fatalf("%+v %v %v", d, got, err)
			}
			if err := server.sendTo(d.remote.String(), got); err != nil {
				t.Fatal(err)
			}
			if client.poll(unix.POLLIN, 5*time.Second) == 0 {
				t.Fatalf("answer %d to client %d did not come: %+v", j, i, b.Stats())
			}
			if _, _, err := client.recvFrom(); err != nil {
				t.Fatal(err)
			}
			if i%10 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		client.close()
	}
}

// TestManyDatagramsAtOnce: what a program has written beyond the datagrams of one call of the loop is sent without another event.
func TestManyDatagramsAtOnce(t *testing.T) {
	b := newBed(t, nil)
	peer, to := b.udpPeer(t)
	p := b.dial(t).socket(unix.SOCK_SEQPACKET, false)
	if err := p.sendTo(to, []byte("first")); err != nil { // it binds, and finds the neighbour
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	if _, _, err := peer.ReadFrom(buf); err != nil {
		t.Fatal(err)
	}
	const all = packetLimit + packetBatch
	b.cfg.Stack.EnterLoop(0, func(socket.LoopStack) { // which reads nothing meanwhile
		for i := range all {
			if err := p.sendTo(to, []byte{byte(i)}); err != nil {
				t.Fatal(err)
			}
		}
	})
	_ = peer.SetReadDeadline(time.Now().Add(limit))
	for i := range all {
		if n, _, err := peer.ReadFrom(buf); err != nil || n != 1 || int(buf[0]) != i {
			t.Fatalf("datagram %d of %d: %v, %v", i, all, buf[:n], err)
		}
	}
}

// TestErrorQueue: what the host itself finds of a neighbour that does not answer is in the queue as on Linux, which sends ICMP to itself.
func TestErrorQueue(t *testing.T) {
	b := newBed(t, nil)
	p := b.dial(t).socket(unix.SOCK_SEQPACKET, false)
	if err := p.setInt(unix.IPPROTO_IP, unix.IP_RECVERR, 1); err != nil {
		t.Fatal(err)
	}
	to := netip.MustParseAddrPort("198.18.0.77:7")
	if prefix := netip.MustParsePrefix(nodeAddr + "/24"); !prefix.Contains(to.Addr()) {
		to = netip.AddrPortFrom(netip.AddrFrom4([4]byte(append(prefix.Addr().AsSlice()[:3:3], 77))), 7)
	}
	if err := p.sendTo(to.String(), []byte("question")); err != nil {
		t.Fatal(err)
	}
	var r reply
	until(t, "an error", func() bool {
		r = p.ask(request{op: opErrors}, p.fd)
		return r.errno == 0
	})
	want := append(appendInt(appendInt(nil, int(syscall.EHOSTUNREACH)), 0), unix.SO_EE_ORIGIN_ICMP, 3, 1, 0, 0, 0, 0, 0)
	if r.remote != to || !bytes.HasPrefix(r.value, want) {
		t.Errorf("%+v, want %v", r, want)
	}
	if r = p.ask(request{op: opErrors}, p.fd); r.errno != syscall.EAGAIN {
		t.Errorf("another one: %+v", r)
	}
}
