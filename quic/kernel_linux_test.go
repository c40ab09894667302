package quic

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

const testPatience = 20 * time.Second

// mergingPair returns a conn that merges and a sender to it.
func mergingPair(t *testing.T, network, addr string) (*kernelConn, *net.UDPConn) {
	t.Helper()
	listen := func(network, addr string) *net.UDPConn {
		pc, err := net.ListenPacket(network, net.JoinHostPort(addr, "0"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { pc.Close() })
		return pc.(*net.UDPConn)
	}
	c, ok := newKernelConn(listen(network, addr)).(*kernelConn)
	if !ok {
		t.Skip("this kernel has no UDP_GRO")
	}
	_ = c.SetReadBuffer(1 << 20)
	if err := c.SetReadDeadline(time.Now().Add(testPatience)); err != nil {
		t.Fatal(err)
	}
	if addr == "" {
		addr = "127.0.0.1"
	}
	return c, listen("udp", addr)
}

// reader reads batches as quic-go does.
type reader struct {
	c    *kernelConn
	msgs [8]ipv4.Message
}

func newReader(c *kernelConn) *reader {
	r := &reader{c: c}
	for i := range r.msgs {
		r.msgs[i] = ipv4.Message{Buffers: [][]byte{make([]byte, maxPacketSize)}, OOB: make([]byte, 128)}
	}
	return r
}

// read calls visit for each of n datagrams.
func (r *reader) read(t *testing.T, n int, visit func(i int, m *ipv4.Message)) {
	t.Helper()
	for i := 0; i < n; {
		got, err := r.c.ReadBatch(r.msgs[:], 0)
		if err != nil {
			t.Fatalf("after %d datagrams: %v", i, err)
		}
		for j := range got {
			visit(i, &r.msgs[j])
			i++
		}
		if i > n {
			t.Fatalf("%d datagrams, want %d", i, n)
		}
	}
}

// segmented is the control messages of a train: its size, and a congestion mark.
func segmented(size int) []byte {
	b := make([]byte, unix.CmsgSpace(2)+unix.CmsgSpace(1))
	binary.NativeEndian.PutUint64(b, uint64(unix.CmsgLen(2)))
	binary.NativeEndian.PutUint32(b[8:], unix.IPPROTO_UDP)
	binary.NativeEndian.PutUint32(b[12:], unix.UDP_SEGMENT)
	binary.NativeEndian.PutUint16(b[16:], uint16(size))
	b2 := b[unix.CmsgSpace(2):]
	binary.NativeEndian.PutUint64(b2, uint64(unix.CmsgLen(1)))
	binary.NativeEndian.PutUint32(b2[8:], unix.IPPROTO_IP)
	binary.NativeEndian.PutUint32(b2[12:], unix.IP_TOS)
	b2[16] = 3
	return b
}

func numbered(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 31 >> 3)
	}
	return b
}

// TestMergedDatagramsAreReadOneByOne sends trains, and reads datagrams of the same bytes, bounds, order, sender and ECN.
func TestMergedDatagramsAreReadOneByOne(t *testing.T) {
	c, from := mergingPair(t, "udp4", "127.0.0.1")
	if err := c.raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVTOS, 1) }); err != nil {
		t.Fatal(err)
	}
	const size, count, last = 1000, 21, 300
	sent := numbered(size*(count-1) + last)
	r := newReader(c)
	for range 3 {
		if _, _, err := from.WriteMsgUDP(sent, segmented(size), c.LocalAddr().(*net.UDPAddr)); err != nil {
			t.Skip("no UDP_SEGMENT on loopback:", err)
		}
		var got []byte
		r.read(t, count, func(i int, m *ipv4.Message) {
			want := size
			if i == count-1 {
				want = last
			}
			if m.N != want || m.Addr.String() != from.LocalAddr().String() {
				t.Fatalf("datagram %d: %d bytes from %v, want %d from %v", i, m.N, m.Addr, want, from.LocalAddr())
			}
			h, body, rest, err := unix.ParseOneSocketControlMessage(m.OOB[:m.NN])
			if err != nil || h.Type != unix.IP_TOS || body[0]&3 != 3 || len(rest) != 0 {
				t.Fatalf("datagram %d: control %x", i, m.OOB[:m.NN])
			}
			got = append(got, m.Buffers[0][:m.N]...)
		})
		if !bytes.Equal(got, sent) {
			t.Fatal("other bytes")
		}
	}
	if c.n != 1 {
		t.Errorf("the last train came as %d messages: it was not merged", c.n)
	}
}

// TestSingleDatagramsAmongTrains has two senders, datagrams of all sizes and empty ones.
func TestSingleDatagramsAmongTrains(t *testing.T) {
	c, a := mergingPair(t, "udp4", "127.0.0.1")
	b, err := net.DialUDP("udp4", nil, c.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	sizes := []int{1, 0, 1452, 700, 0, 0, 37, 1200, 1200, 1200, 5}
	var want []string
	for i, n := range slices.Concat(sizes, sizes, sizes) {
		p, name := numbered(n), b.LocalAddr().String()
		if i%3 == 0 {
			name = a.LocalAddr().String()
			_, err = a.WriteTo(p, c.LocalAddr())
		} else {
			_, err = b.Write(p)
		}
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			want = append(want, name+string(p))
		}
	}
	newReader(c).read(t, len(want), func(i int, m *ipv4.Message) {
		if got := m.Addr.String() + string(m.Buffers[0][:m.N]); got != want[i] {
			t.Errorf("datagram %d: %d bytes from %v", i, m.N, m.Addr)
		}
	})
}

// TestSendersAddresses reads addresses of both families, and of IPv4 on a socket of both.
func TestSendersAddresses(t *testing.T) {
	for _, c := range []struct{ network, addr string }{{"udp4", "127.0.0.1"}, {"udp6", "::1"}, {"udp", ""}} {
		to, from := mergingPair(t, c.network, c.addr)
		port := to.LocalAddr().(*net.UDPAddr).Port
		if _, err := from.WriteTo([]byte("x"), &net.UDPAddr{IP: from.LocalAddr().(*net.UDPAddr).IP, Port: port}); err != nil {
			t.Fatal(err)
		}
		newReader(to).read(t, 1, func(_ int, m *ipv4.Message) {
			got, want := m.Addr.(*net.UDPAddr), from.LocalAddr().(*net.UDPAddr)
			if !got.IP.Equal(want.IP) || got.Port != want.Port || got.Zone != want.Zone {
				t.Errorf("%s: from %v, want %v", c.network, got, want)
			}
		})
	}
	scoped := addrOf(&unix.RawSockaddrInet6{Family: unix.AF_INET6, Addr: [16]byte{0xfe, 0x80, 15: 1}, Scope_id: 7})
	if scoped.String() != "[fe80::1%7]:0" {
		t.Errorf("link-local: %v", scoped)
	}
}

// TestMergingReadEnds has a read end with its deadline, and with the conn.
func TestMergingReadEnds(t *testing.T) {
	c, _ := mergingPair(t, "udp4", "127.0.0.1")
	r := newReader(c)
	if err := c.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ReadBatch(r.msgs[:], 0); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(10*time.Millisecond, func() { c.Close() })
	if _, err := c.ReadBatch(r.msgs[:], 0); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestMergingReadAllocatesNothing reads trains of one peer.
func TestMergingReadAllocatesNothing(t *testing.T) {
	c, from := mergingPair(t, "udp4", "127.0.0.1")
	r, sent, oob, to := newReader(c), numbered(8000), segmented(1000), c.LocalAddr().(*net.UDPAddr).AddrPort()
	if n := testing.AllocsPerRun(100, func() {
		if _, _, err := from.WriteMsgUDPAddrPort(sent, oob, to); err != nil {
			t.Skip("no UDP_SEGMENT on loopback:", err)
		}
		r.read(t, 8, func(int, *ipv4.Message) {})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestSplitControl(t *testing.T) {
	gro := make([]byte, unix.CmsgSpace(4))
	binary.NativeEndian.PutUint64(gro, uint64(unix.CmsgLen(4)))
	binary.NativeEndian.PutUint32(gro[8:], unix.IPPROTO_UDP)
	binary.NativeEndian.PutUint32(gro[12:], unix.UDP_GRO)
	binary.NativeEndian.PutUint32(gro[16:], 1280)
	other := segmented(9)[unix.CmsgSpace(2):]
	for _, c := range []struct {
		oob, rest []byte
		size      int
	}{
		{nil, nil, 0},
		{other, other, 0},
		{gro, nil, 1280},
		{slices.Concat(gro, other), other, 1280},
		{gro[:10], gro[:10], 0},
	} {
		if rest, size := splitControl(c.oob); !bytes.Equal(rest, c.rest) || size != c.size {
			t.Errorf("%x: %x, %d", c.oob, rest, size)
		}
	}
}
