package socket

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/stack"
)

// readv reads from a socket into the room of a connection.
func readv(fd int, room *[2][]byte) (int, syscall.Errno) {
	var v [2]unix.Iovec
	k := 0
	for _, b := range room {
		if len(b) > 0 {
			v[k].Base = unsafe.SliceData(b)
			v[k].SetLen(len(b))
			k++
		}
	}
	n, _, errno := unix.RawSyscall(unix.SYS_READV, uintptr(fd), uintptr(unsafe.Pointer(&v)), uintptr(k))
	return int(n), errno
}

// unixPair returns the two ends of an AF_UNIX stream.
func unixPair(t testing.TB) (loop int, program *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fds[0]) })
	return fds[0], fileConn(t, fds[1])
}

// relay moves bytes from a file to a connection, in the loop.
type relay struct {
	t     testing.TB
	fd    int
	in    LoopConn
	watch *stack.FileWatch
}

// ready is called for both sides.
func (r *relay) ready() {
	room, err := r.in.Reserve(16 << 10)
	if err != nil {
		r.t.Error(err)
		return
	}
	if len(room[0]) == 0 {
		_ = r.watch.Modify(0) // until the connection is writable
		return
	}
	n, errno := readv(r.fd, &room)
	if err := r.in.Commit(max(n, 0) * (1 - int(min(errno, 1)))); err != nil {
		r.t.Error(err)
	}
	if n == 0 && errno == 0 {
		r.watch.Remove()
		_ = r.in.CloseWrite()
	}
}

// TestRelayInTheLoop sends what a program writes to an AF_UNIX socket over a connection: no goroutine moves it, and bytes are
// copied into the send buffer by readv(2). The peer reads slowly, so that the buffer fills.
func TestRelayInTheLoop(t *testing.T) {
	for _, loops := range []int{1, 2} {
		x := newTestbed(t, testbedConfig{loops: loops})
		c, s := x.pair(t)
		fd, program := unixPair(t)
		r := &relay{t: t, fd: fd}
		if err := c.OnReady(func(in LoopConn, ev Events) {
			if ev&Writable != 0 && r.watch != nil {
				_ = r.watch.Modify(stack.FileReadable)
			}
		}); err != nil {
			t.Fatal(err)
		}
		c.Do(func(in LoopConn) {
			var err error
			r.in = in
			if r.watch, err = x.a.LoopOf(in).Watch(fd, stack.FileReadable, func(LoopStack, stack.FileEvents) { r.ready() }); err != nil {
				t.Fatal(err)
			}
		})
		data := make([]byte, 8<<20)
		rnd := rand.NewChaCha8([32]byte{1})
		_, _ = rnd.Read(data)
		go func() {
			for rest := data; len(rest) > 0; {
				n := min(len(rest), 1+int(rnd.Uint64()%50_000))
				_, _ = program.Write(rest[:n])
				rest = rest[n:]
			}
			_ = program.Close()
		}()
		within(t, 60*time.Second, "relay", func() {
			time.Sleep(20 * time.Millisecond)
			got, err := io.ReadAll(s)
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d of %d bytes, %v", len(got), len(data), err)
			}
		})
		_, _ = c.Close(), s.Close()
		x.checkEmpty(t)
	}
}

// TestCommitAfterClose fails, and leaves no memory.
func TestCommitAfterClose(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	for _, end := range []func(in LoopConn) error{LoopConn.Close, LoopConn.Abort, LoopConn.CloseWrite} {
		c, s := x.pair(t)
		c.Do(func(in LoopConn) {
			room, err := in.Reserve(100_000)
			if err != nil || len(room[0]) == 0 {
				t.Fatal(err)
			}
			_ = end(in)
			if err := in.Commit(10); err == nil {
				t.Error("committed")
			}
			if _, err := in.Reserve(1); err == nil {
				t.Error("reserved")
			}
		})
		_, _ = c.Close(), s.Close()
		x.checkEmpty(t)
	}
	c, s := x.pair(t)
	c.Do(func(in LoopConn) {
		_, _ = in.Reserve(1000)
		_, _ = in.Write([]byte("x"))
		checkOpError(t, in.Commit(10), "write", errNotReserved)
	})
	_, _ = c.Close(), s.Close()
	x.checkEmpty(t)
}

// fileConn returns the other end of a socket pair for a goroutine.
func fileConn(t testing.TB, fd int) *net.UnixConn {
	t.Helper()
	f := os.NewFile(uintptr(fd), "program")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.UnixConn)
}
