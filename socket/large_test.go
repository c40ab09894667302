package socket_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/testnet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/afpacket"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack"
)

// Large packets of Linux come to the sockets of a stack over AF_PACKET, whose payload the driver places: into the buffers of
// readers that wait, and into receive buffers. One reader stalls meanwhile, and one closes with data unread.
func TestLargePacketsOfLinux(t *testing.T) {
	n := testnet.For(t, "mr-large")
	linux, here := n.Namespace("linux"), n.Namespace("here")
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(n.Link(linux, "eth0", here, "mr0"))
	check(linux.Up("eth0", "198.18.0.1/24"))
	check(here.Sysctl("net.ipv6.conf.mr0.disable_ipv6", "1"))
	check(here.Up("mr0"))

	arena, err := ring.NewArena(ring.ArenaConfig{Frames: 8192, Huge: ring.HugeOff})
	check(err)
	defer arena.Close()
	pool, err := arena.Cut(0)
	check(err)
	var dev *afpacket.Device
	check(here.Do(func() (err error) {
		dev, err = afpacket.Open(afpacket.Config{Interface: "mr0", Pools: []*ring.Pool{pool}, All: true, Offload: true})
		return err
	}))
	check(dev.SetOffload(true))
	spy := &placerSpy{Driver: dev.Queues[0]}
	s, err := socket.New(socket.Config{
		Loops: []stack.Config{{Devices: []pmd.Driver{spy}, Pool: pool, Engine: gpukern.NewCPU(gpukern.Config{})}},
		Addrs: []socket.Address{{Prefix: netip.MustParsePrefix("198.18.0.2/24")}},
	})
	check(err)
	l, err := s.Listen("tcp", "198.18.0.2:7")
	check(err)

	data := make([]byte, 8<<20)
	for i := range data {
		data[i] = byte(i*7 + i>>9*31 + i>>17)
	}
	want := sha256.Sum256(data)
	send := func(size int) (net.Conn, net.Conn) {
		var c net.Conn
		check(linux.Do(func() (err error) {
			c, err = net.DialTimeout("tcp", "198.18.0.2:7", 5*time.Second)
			return err
		}))
		in, err := l.Accept()
		check(err)
		check(c.SetDeadline(time.Now().Add(30 * time.Second)))
		check(in.SetDeadline(time.Now().Add(30 * time.Second)))
		go func() {
			_, _ = c.Write(data[:size])
			_ = c.(*net.TCPConn).CloseWrite()
		}()
		return c, in
	}
	read := func(what string, in net.Conn, buf int) {
		t.Helper()
		h := sha256.New()
		size, err := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{in}, make([]byte, buf))
		if err != nil || size != int64(len(data)) || [32]byte(h.Sum(nil)) != want {
			t.Errorf("%s: %d bytes of %d, %v, or others", what, size, len(data), err)
		}
	}

	stalledPeer, stalled := send(len(data))
	for _, buf := range []int{1 << 20, 64 << 10, 32 << 10, 4000} {
		c, in := send(len(data))
		read(fmt.Sprintf("buffer of %d", buf), in, buf)
		check(in.Close())
		c.Close()
	}
	c, in := send(len(data))
	_, err = io.ReadFull(in, make([]byte, 100_000))
	check(err)
	check(in.Close())
	c.Close()
	read("stalled", stalled, 64<<10)
	check(stalled.Close())
	stalledPeer.Close()

	if n := spy.direct.Load(); n < 100 {
		t.Errorf("the payload of %d packets was placed: the test shows little", n)
	}
	// A device that is closed under a connection with data on the way.
	c, in = send(len(data))
	_, err = io.ReadFull(in, make([]byte, 100_000))
	check(err)
	check(s.Close())
	check(dev.Close())
	c.Close()
	if pool.Free() != pool.Size() {
		t.Errorf("%d frames of %d came back", pool.Free(), pool.Size())
	}
}

// placerSpy counts the packets whose payload is placed.
type placerSpy struct {
	pmd.Driver
	placer pmd.Placer
	direct atomic.Int64
}

func (p *placerSpy) Info() pmd.Info {
	i := p.Driver.Info()
	i.Placer.Attach(func(head []byte, size int) (pmd.Placement, int, [][]byte) {
		how, headers, pieces := p.placer.Place(head, size)
		if how == pmd.PlaceDirect {
			p.direct.Add(1)
		}
		return how, headers, pieces
	})
	i.Placer = &p.placer
	return i
}
