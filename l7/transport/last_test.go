package transport

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// segmentsIn returns how many segments of TCP a connection has got, by the kernel's count.
func segmentsIn(t *testing.T, c net.Conn) (n uint32) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		info, infoErr := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err = infoErr; err == nil {
			n = info.Segs_in
		}
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// The last bytes and the end of the output are one segment, however the connection closes.
func TestLastBytesLeaveWithTheEnd(t *testing.T) {
	for name, end := range map[string]func(Conn){
		"Close": Conn.Close, "Linger": Conn.Linger, "CloseWrite": func(c Conn) { _ = c.CloseWrite() },
	} {
		t.Run(name, func(t *testing.T) {
			segments := func(write func(Conn, []byte) (int, error)) uint32 {
				l := newLoop(t)
				accepted := false
				li := listenLocal(t, l, func(c Conn) Handler {
					if n, err := write(c, []byte("last")); n != 4 || err != nil {
						t.Error(n, err)
					}
					end(c)
					accepted = true
					return nil
				})
				c := dialLocal(t, li.addr)
				iterateUntil(t, l, "no connection", func() bool { return accepted })
				if b, err := io.ReadAll(c); string(b) != "last" || err != nil {
					t.Fatalf("%q, %v", b, err)
				}
				return segmentsIn(t, c)
			}
			apart := segments(Conn.Write)
			joined := segments(func(c Conn, p []byte) (int, error) { return c.(LastWriter).WriteLast(p) })
			if joined != apart-1 {
				t.Errorf("%d segments, and %d with Write", joined, apart)
			}
		})
	}
}

// Input that was not read makes the end a reset: the last bytes have left before it, as those of Write have.
func TestLastBytesOutliveUnreadInput(t *testing.T) {
	l := newLoop(t)
	closed := false
	li := listenLocal(t, l, func(Conn) Handler {
		return handlerFunc(func(c Conn, ev Events) {
			if ev&Readable == 0 || closed {
				return
			}
			if n, err := c.(LastWriter).WriteLast([]byte("last")); n != 4 || err != nil {
				t.Error(n, err)
			}
			c.Close()
			closed = true
		})
	})
	c := dialLocal(t, li.addr)
	if _, err := c.Write([]byte("nobody reads it")); err != nil {
		t.Fatal(err)
	}
	iterateUntil(t, l, "not closed", func() bool { return closed })
	b := make([]byte, 4)
	if _, err := io.ReadFull(c, b); string(b) != "last" {
		t.Errorf("%q, %v", b, err)
	}
}

// An abort gives up what waits for the end, and sends no FIN that would make a part look whole.
func TestAbortAfterLastBytesIsAReset(t *testing.T) {
	l := newLoop(t)
	done := false
	li := listenLocal(t, l, func(c Conn) Handler {
		_, _ = c.(LastWriter).WriteLast([]byte("last"))
		c.Abort()
		done = true
		return nil
	})
	c := dialLocal(t, li.addr)
	iterateUntil(t, l, "no connection", func() bool { return done })
	if b, err := io.ReadAll(c); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("%q, %v, want a reset", b, err)
	}
}

// What the send buffer does not take is reported and written as by Write, and nothing of it waits for a timer of the kernel.
func TestLastBytesBeyondTheSendBuffer(t *testing.T) {
	content := pattern(8 << 20)
	l := newLoop(t)
	sent, waits := 0, 0
	send := func(c Conn) {
		for sent < len(content) {
			n, err := c.(LastWriter).WriteLast(content[sent:])
			if sent += n; err == ErrAgain {
				waits++
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
		c.Close()
		if _, err := c.(LastWriter).WriteLast(content[:1]); err != ErrClosed {
			t.Error(err)
		}
	}
	li := listenLocal(t, l, func(c Conn) Handler {
		send(c)
		return handlerFunc(func(c Conn, ev Events) {
			if ev&Writable != 0 {
				send(c)
			}
		})
	})
	c := dialLocal(t, li.addr)
	iterateUntil(t, l, "all was taken", func() bool { return waits > 0 })
	got := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(c)
		got <- b
	}()
	iterateUntil(t, l, "not all was sent", func() bool { return sent == len(content) })
	if b := <-got; !bytes.Equal(b, content) {
		t.Errorf("%d bytes of %d arrived, or others", len(b), len(content))
	}
}
