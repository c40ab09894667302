package gpunet

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/gpunet/queue"
	"github.com/millrace/millrace/internal/testkit/hostkern"
	"github.com/millrace/millrace/socket"
)

const port = "7000"

// launch is struct gpunet of gpunet.cuh.
type launch struct {
	slab, memory uintptr
	patience     uint64
}

// serverLaunch is struct gpunet_server of testdata/servers.cu, and callsLaunch struct gpunet_calls.
type (
	serverLaunch struct {
		launch
		port, increments uint32
	}
	callsLaunch struct {
		launch
		results, peer uintptr
		port          uint32
	}
)

// peerAt is where the results of gpunet_calls have the peer's address.
const peerAt = 1024

// bed is a kernel on the CPU that serves connections of a stack.
type bed struct {
	client *socket.Stack
	server *Server
	ended  <-chan struct{}

	results []byte // of gpunet_calls
}

// offHeap returns zeroed memory that Go's collector does not know.
func offHeap(t testing.TB, n int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return b
}

func newBed(t testing.TB, l queue.Layout, increments uint32) *bed {
	t.Helper()
	return startBed(t, l, increments, false)
}

func startBed(t testing.TB, l queue.Layout, increments uint32, calls bool) *bed {
	t.Helper()
	lib := hostkern.Open(t, "../../gpunet/testdata/servers.cu")
	a, b, err := socket.Pair(netip.MustParsePrefix("198.18.0.1/24"), netip.MustParsePrefix("198.18.0.2/24"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(a.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	})
	s, err := New(Config{Stack: b, Layout: l})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := b.Listen("tcp", ":"+port)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(ln.(*socket.Listener)); err != nil {
		t.Fatal(err)
	}
	memory := offHeap(t, l.Blocks*l.Connections*(l.Ring+128))
	args := offHeap(t, 4096)
	words := launch{uintptr(unsafe.Pointer(&s.Slab()[0])), uintptr(unsafe.Pointer(&memory[0])), uint64(time.Minute)}
	kernel := "gpunet_server"
	x := &bed{client: a, server: s}
	if calls {
		x.results = offHeap(t, 4096)
		at := uintptr(unsafe.Pointer(&x.results[0]))
		*(*callsLaunch)(unsafe.Pointer(&args[0])) = callsLaunch{words, at, at + peerAt, 7000}
		kernel = "gpunet_calls"
	} else {
		*(*serverLaunch)(unsafe.Pointer(&args[0])) = serverLaunch{words, 7000, increments}
	}
	x.ended = lib.Start(t, kernel, unsafe.Pointer(&args[0]), l.Blocks, 64, 0)
	t.Cleanup(func() { x.stop(t) })
	return x
}

// TestCalls compares what each call of the device API returns, and what the peer sees.
func TestCalls(t *testing.T) {
	x := startBed(t, queue.Layout{Blocks: 1, Connections: 2, Ring: 1024}, 0, true)
	var c net.Conn
	for got, err := []byte(nil), error(nil); len(got) == 0; c.Close() {
		if c, err = x.client.Dial("tcp", "198.18.0.2:"+port); err != nil {
			t.Fatal(err)
		}
		if _, err = c.Write([]byte("hello")); err == nil {
			err = c.(*socket.TCPConn).CloseWrite()
		}
		if err == nil {
			got, err = io.ReadAll(c)
		}
		if (err != nil || string(got) != "hello") && x.server.Stats().Refused == 0 {
			t.Fatalf("%q, %v", got, err)
		}
	}
	x.server.Stop()
	<-x.ended
	want := []int32{
		-int32(syscall.EADDRNOTAVAIL), 0, -int32(syscall.EINVAL), -int32(syscall.EAGAIN), -int32(syscall.EAGAIN), 0, -int32(syscall.EBADF),
		1, 3, 2, 5, 0, -int32(syscall.EINVAL), 0, -int32(syscall.EPIPE), -int32(syscall.EPIPE), 0, -int32(syscall.EBADF), -int32(syscall.EBADF),
		-int32(syscall.ECANCELED),
	}
	for i, w := range want {
		if got := int32(binary.NativeEndian.Uint32(x.results[4*i:])); got != w {
			t.Errorf("call %d returned %d, want %d", i, got, w)
		}
	}
	addr := c.LocalAddr().(*net.TCPAddr).AddrPort()
	if ip := netip.AddrFrom16([16]byte(x.results[peerAt:][:16])).Unmap(); ip != addr.Addr() || binary.NativeEndian.Uint32(x.results[peerAt+16:]) != uint32(addr.Port()) {
		t.Errorf("the peer is %v, want %v", ip, addr)
	}
}

// stop stops the kernel, which must have kept to the protocol.
func (x *bed) stop(t testing.TB) {
	x.server.Stop()
	select {
	case <-x.ended:
	case <-time.After(30 * time.Second):
		t.Fatal("the kernel does not end")
	}
	if s := x.server.Stats(); s.Violations > 0 {
		t.Errorf("%+v", s)
	}
	if err := x.server.Close(); err != nil {
		t.Error(err)
	}
}

// dial connects. Blocks that do not listen yet reset connections.
func (x *bed) dial(t testing.TB) net.Conn {
	t.Helper()
	for start := x.server.Stats().Refused; ; runtime.Gosched() {
		c, err := x.client.Dial("tcp", "198.18.0.2:"+port)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		// The first byte comes back when a block has the connection.
		if _, err := c.Write([]byte{0, 0, 0, 0}); err == nil {
			if _, err := io.ReadFull(c, make([]byte, 4)); err == nil {
				return c
			}
		}
		c.Close()
		if x.server.Stats().Refused == start {
			t.Fatal("the connection ended, and was not refused")
		}
	}
}

// exchange sends n random bytes, closes the direction, and compares the hashes of what was sent and what came back up to the end.
func exchange(c net.Conn, n int, seed uint64) error {
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	sent, got := sha256.New(), sha256.New()
	failed := make(chan error, 1)
	go func() {
		_, err := io.CopyN(io.MultiWriter(c, sent), r, int64(n))
		failed <- errors.Join(err, c.(*socket.TCPConn).CloseWrite())
	}()
	m, err := io.Copy(got, c)
	if err = errors.Join(err, <-failed); err != nil {
		return err
	}
	if m != int64(n) || !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		return fmt.Errorf("%d bytes of %d came back, or others", m, n)
	}
	return nil
}

// TestEcho transfers bytes both ways over several connections and blocks, with half-close.
func TestEcho(t *testing.T) {
	x := newBed(t, queue.Layout{Blocks: 2, Connections: 8, Ring: 4096}, 0)
	var all sync.WaitGroup
	for i, n := range []int{0, 1, 84, 85, 4096, 4097, 200_000, 300_001} {
		c := x.dial(t)
		all.Go(func() {
			defer c.Close()
			if err := exchange(c, n, uint64(i)); err != nil {
				t.Errorf("%d bytes: %v", n, err)
			}
		})
	}
	all.Wait()
}

// TestIncrementServer is GPUnet's first example: float32s come back plus 1, also if they arrive in pieces.
func TestIncrementServer(t *testing.T) {
	x := newBed(t, queue.Layout{Blocks: 1, Connections: 2, Ring: 1024}, 1)
	c := x.dial(t)
	defer c.Close()
	const count = 3000
	go func() {
		var b []byte
		for i := range count {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(i)))
		}
		for r := rand.New(rand.NewPCG(3, 4)); len(b) > 0; {
			n := min(1+r.IntN(300), len(b))
			_, _ = c.Write(b[:n])
			b = b[n:]
		}
	}()
	b := make([]byte, 4*count)
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatal(err)
	}
	for i := range count {
		if v := math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])); v != float32(i+1) {
			t.Fatalf("number %d is %v", i, v)
		}
	}
	if _, err := c.Write([]byte{1, 2}); err != nil { // half a number: the block closes
		t.Fatal(err)
	}
	if err := c.(*socket.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(b); n != 0 || err != io.EOF {
		t.Errorf("%d bytes, %v behind half a number", n, err)
	}
}

// TestSlowPeer: a peer that does not read gets all later, and its FIN behind it. In between the block has a ring's bytes outstanding.
func TestSlowPeer(t *testing.T) {
	x := newBed(t, queue.Layout{Blocks: 1, Connections: 1, Ring: 4096}, 0)
	c := x.dial(t).(*socket.TCPConn)
	defer c.Close()
	if err := c.SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	var served *conn
	x.server.stack.EnterLoop(0, func(socket.LoopStack) {
		served = x.server.loops[0].blocks[0].conns[0]
		if err := served.in.SetOptions(func(o *socket.TCPOptions) { o.SendBuffer = 4096 }); err != nil {
			t.Error(err)
		}
	})
	const n = 300_000
	sent := make([]byte, n)
	rand.NewChaCha8([32]byte{5}).Read(sent)
	failed := make(chan error, 1)
	go func() {
		_, err := c.Write(sent)
		failed <- errors.Join(err, c.CloseWrite())
	}()
	for waits := 0; waits == 0; time.Sleep(time.Millisecond) {
		x.server.stack.EnterLoop(0, func(socket.LoopStack) { waits = len(served.backlog) })
		if waits > 4096 {
			t.Fatalf("%d bytes wait, of a ring of 4096", waits)
		}
	}
	got, err := io.ReadAll(c)
	if err = errors.Join(err, <-failed); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes of %d, or others: %v", len(got), n, err)
	}
}

// TestReset: a peer that resets in mid-message ends its own connection alone, and the slot is used again.
func TestReset(t *testing.T) {
	x := newBed(t, queue.Layout{Blocks: 1, Connections: 2, Ring: 1024}, 0)
	stays := x.dial(t)
	defer stays.Close()
	for range 6 {
		c := x.dial(t)
		if _, err := c.Write(make([]byte, 20_000)); err != nil { // more than comes back before the reset
			t.Fatal(err)
		}
		if err := c.(*socket.TCPConn).SetLinger(0); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
	}
	if err := exchange(stays, 5000, 9); err != nil {
		t.Error(err)
	}
	if s := x.server.Stats(); s.Reset == 0 {
		t.Errorf("%+v", s)
	}
}

// TestManyConnections has 1000 connections open at once, on four blocks that share them evenly.
func TestManyConnections(t *testing.T) {
	x := newBed(t, queue.Layout{Blocks: 4, Connections: 400, Ring: 1024}, 0)
	conns := make([]net.Conn, 1000)
	for i := range conns {
		conns[i] = x.dial(t)
		defer conns[i].Close()
	}
	l := x.server.loops[0]
	x.server.stack.EnterLoop(0, func(socket.LoopStack) {
		for i, b := range l.blocks {
			if n := b.q.Used(); n < 200 || n > 400 {
				t.Errorf("block %d has %d connections", i, n)
			}
		}
	})
	for i, c := range conns {
		if _, err := c.Write(binary.LittleEndian.AppendUint32(nil, uint32(i))); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range conns {
		var b [4]byte
		if _, err := io.ReadFull(c, b[:]); err != nil || binary.LittleEndian.Uint32(b[:]) != uint32(i) {
			t.Fatalf("connection %d: %v, %v", i, b, err)
		}
	}
}

// TestStop: connections of a kernel that is stopped are reset, and its blocks end.
func TestStop(t *testing.T) {
	x := newBed(t, queue.Layout{Blocks: 2, Connections: 2, Ring: 1024}, 0)
	c := x.dial(t)
	defer c.Close()
	x.server.Stop()
	<-x.ended
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v", err)
	}
}

func TestConfigErrors(t *testing.T) {
	a, b, err := socket.Pair(netip.MustParsePrefix("198.18.0.1/24"), netip.MustParsePrefix("198.18.0.2/24"))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	defer b.Close()
	for _, l := range []queue.Layout{{}, {Blocks: 1, Connections: 1, Ring: 5}} {
		if _, err := New(Config{Stack: b, Layout: l}); err == nil {
			t.Errorf("%+v", l)
		}
	}
}
