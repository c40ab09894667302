package socket_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/pmd"
	"github.com/millrace/millrace/pmd/afpacket"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/socket"
	"github.com/millrace/millrace/stack"
)

// largeWorld is a stack that receives large packets of Linux over AF_PACKET, and places their payload.
type largeWorld struct {
	t     *testing.T
	linux *testnet.Namespace
	here  *testnet.Namespace
	pool  *ring.Pool
	dev   *afpacket.Device
	spy   *placerSpy
	udp   *udpSpy
	stack *socket.Stack
	lis   net.Listener
}

func newLargeWorld(t *testing.T, name string) *largeWorld {
	n := testnet.For(t, name)
	w := &largeWorld{t: t, linux: n.Namespace("linux")}
	here := n.Namespace("here")
	check := w.check
	check(n.Link(w.linux, "eth0", here, "mr0"))
	check(w.linux.Up("eth0", "198.18.0.1/24"))
	check(here.Sysctl("net.ipv6.conf.mr0.disable_ipv6", "1"))
	check(here.Up("mr0"))
	w.here = here

	arena, err := ring.NewArena(ring.ArenaConfig{Frames: 8192, Huge: ring.HugeOff})
	check(err)
	t.Cleanup(func() { arena.Close() })
	w.pool, err = arena.Cut(0)
	check(err)
	check(here.Do(func() (err error) {
		w.dev, err = afpacket.Open(afpacket.Config{Interface: "mr0", Pools: []*ring.Pool{w.pool}, All: true, Offload: true})
		return err
	}))
	check(w.dev.SetOffload(true))
	w.udp = &udpSpy{Driver: w.dev.Queues[0]}
	w.spy = &placerSpy{Driver: w.udp}
	w.stack, err = socket.New(socket.Config{
		Loops: []stack.Config{{Devices: []pmd.Driver{w.spy}, Pool: w.pool, Engine: gpukern.NewCPU(gpukern.Config{})}},
		Addrs: []socket.Address{{Prefix: netip.MustParsePrefix("198.18.0.2/24")}, {Prefix: netip.MustParsePrefix("2001:db8::2/64")}},
	})
	check(err)
	w.lis, err = w.stack.Listen("tcp", "198.18.0.2:7")
	check(err)
	return w
}

func (w *largeWorld) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// connect returns both ends of a connection that Linux opens.
func (w *largeWorld) connect() (linux, here net.Conn) {
	w.t.Helper()
	w.check(w.linux.Do(func() (err error) {
		linux, err = net.DialTimeout("tcp", "198.18.0.2:7", 5*time.Second)
		return err
	}))
	here, err := w.lis.Accept()
	w.check(err)
	w.check(linux.SetDeadline(time.Now().Add(30 * time.Second)))
	w.check(here.SetDeadline(time.Now().Add(30 * time.Second)))
	return linux, here
}

// close ends the stack and its device, which return all frames.
func (w *largeWorld) close() {
	w.t.Helper()
	w.check(w.stack.Close())
	w.check(w.dev.Close())
	if w.pool.Free() != w.pool.Size() {
		w.t.Errorf("%d frames of %d came back", w.pool.Free(), w.pool.Size())
	}
}

// Large packets of Linux come to the sockets of a stack over AF_PACKET, whose payload the driver places: into the buffers of
// readers that wait, and into receive buffers. One reader stalls meanwhile, and one closes with data unread.
func TestLargePacketsOfLinux(t *testing.T) {
	w := newLargeWorld(t, "mr-large")
	check := w.check
	data := make([]byte, 8<<20)
	for i := range data {
		data[i] = byte(i*7 + i>>9*31 + i>>17)
	}
	want := sha256.Sum256(data)
	send := func(size int) (net.Conn, net.Conn) {
		c, in := w.connect()
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
	_, err := io.ReadFull(in, make([]byte, 100_000))
	check(err)
	check(in.Close())
	c.Close()
	read("stalled", stalled, 64<<10)
	check(stalled.Close())
	stalledPeer.Close()

	if n := w.spy.direct.Load(); n < 100 {
		t.Errorf("the payload of %d packets was placed: the test shows little", n)
	}
	// A device that is closed under a connection with data on the way.
	c, in = send(len(data))
	_, err = io.ReadFull(in, make([]byte, 100_000))
	check(err)
	w.close()
	c.Close()
}

// Many connections download at once, so that their large packets alternate in each burst. Every byte is checked, and so is that a
// reader's buffer is written to only while Read runs: not after it has returned, with data, at its deadline, or because the
// connection was closed.
func TestManyDownloadsOfLinux(t *testing.T) {
	w := newLargeWorld(t, "mr-many")
	const conns, size = 24, 1 << 20
	failed := make(chan error, conns)
	for i := range conns {
		c, in := w.connect()
		go func() {
			_, _ = c.Write(download(i, 0, size))
			_ = c.(*net.TCPConn).CloseWrite()
		}()
		go func() {
			failed <- readDownload(in.(*socket.TCPConn), i, size)
			c.Close()
		}()
	}
	for range conns {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	if n := w.spy.direct.Load(); n < 100 {
		t.Errorf("the payload of %d packets was placed: the test shows little", n)
	}
	w.close()
}

// download returns n bytes from byte at on of what connection i downloads.
func download(i, at, n int) []byte {
	b := make([]byte, n)
	for k := range b {
		x := at + k
		b[k] = byte(i*37 + x*7 + x>>9*31 + x>>17)
	}
	return b
}

// readDownload reads the download of connection i with buffers of several sizes and short deadlines. Connection 5 and each
// sixth after it is closed in a Read of its second half.
func readDownload(c *socket.TCPConn, i, size int) error {
	defer c.Close()
	buf := make([]byte, []int{1000, 20_000, 70_000, 300_000}[i%4])
	const mine = 0xa5 // fills the buffer while no Read runs
	for at, round := 0, 0; ; round++ {
		for k := range buf {
			buf[k] = mine
		}
		closes := i%6 == 5 && at > size/2
		if round%7 == 3 {
			if err := c.SetReadDeadline(time.Now().Add(200 * time.Microsecond)); err != nil && !closes {
				return err
			}
		}
		if closes {
			time.AfterFunc(time.Duration(i)*20*time.Microsecond, func() { c.Close() })
		}
		n, err := c.Read(buf)
		if want := download(i, at, n); !bytes.Equal(buf[:n], want) {
			return fmt.Errorf("connection %d: other bytes than those that were sent, between %d and %d", i, at, at+n)
		}
		at += n
		for k := range buf {
			buf[k] = mine
		}
		if round%7 == 3 || err != nil {
			time.Sleep(time.Millisecond)
		} else {
			runtime.Gosched()
		}
		for k, x := range buf {
			if x != mine {
				return fmt.Errorf("connection %d: byte %d of the buffer was written to after Read had returned %d, %v", i, k, n, err)
			}
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) || err == nil:
			if err := c.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil && !closes {
				return err
			}
		case closes && (errors.Is(err, net.ErrClosed) || err == io.EOF):
			return nil
		case err == io.EOF && at == size:
			return nil
		default:
			return fmt.Errorf("connection %d: %d bytes of %d, %w", i, at, size, err)
		}
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
