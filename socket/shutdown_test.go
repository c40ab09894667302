package socket

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/tcp"
)

// soon returns a context that ends after d.
func soon(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// TestShutdownDelivers closes connections with most of their data unsent, and then the stack: every byte and the FIN arrive,
// though the peer begins late to read.
func TestShutdownDelivers(t *testing.T) {
	x := newTestbed(t, testbedConfig{loops: 2})
	const size, n = 200_000, 10
	var readers sync.WaitGroup
	for i := range n {
		c, s := x.pair(t)
		if _, err := c.Write(bytes.Repeat([]byte{byte(i)}, size)); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			_ = c.Close()
		}
		readers.Go(func() {
			time.Sleep(100 * time.Millisecond)
			got, err := io.ReadAll(s)
			if len(got) != size || bytes.Count(got, []byte{byte(i)}) != size || err != nil {
				t.Errorf("%d of %d bytes came, then %v", len(got), size, err)
			}
			_ = s.Close()
		})
	}
	within(t, 10*time.Second, "shutdown", func() {
		if err := x.a.Shutdown(soon(t, 5*time.Second)); err != nil {
			t.Error(err)
		}
		readers.Wait()
	})
}

// TestCloseResetsClosedConnections closes connections with most of their data unsent, and then the stack at once: the peers
// learn that data was lost.
func TestCloseResetsClosedConnections(t *testing.T) {
	x := newTestbed(t, testbedConfig{loops: 2, frames: 8192})
	const n = 300
	var peers []*TCPConn
	for range n {
		c, s := x.pair(t)
		_ = s.SetReadBuffer(8 << 10)
		if _, err := c.Write(make([]byte, 100_000)); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		peers = append(peers, s)
	}
	within(t, 10*time.Second, "close", func() {
		if err := x.a.Close(); err != nil {
			t.Error(err)
		}
		for i, s := range peers {
			if _, err := io.Copy(io.Discard, s); !errors.Is(err, syscall.ECONNRESET) {
				t.Fatalf("peer %d: %v, want a reset", i, err)
			}
			_ = s.Close()
		}
	})
}

// TestShutdownFinishesWrites has a Write that waits for room while the stack shuts down: it returns without an error, and what it
// wrote arrives whole. A Write afterwards fails, and reads work until the end.
func TestShutdownFinishesWrites(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	c, s := x.pair(t)
	const size = 8 << 20
	wrote := make(chan error, 2)
	go func() {
		n, err := c.Write(make([]byte, size))
		if n != size && err == nil {
			err = io.ErrShortWrite
		}
		wrote <- err
	}()
	eventually(t, "the write does not wait", func() bool {
		c.h.Enter()
		defer c.h.Exit()
		return c.wq.head != nil
	})
	ended := make(chan error)
	go func() { ended <- x.a.Shutdown(soon(t, 8*time.Second)) }()
	within(t, 10*time.Second, "shutdown", func() {
		got, err := io.Copy(io.Discard, s)
		if got != size || err != nil {
			t.Errorf("%d bytes came, then %v", got, err)
		}
		if err := <-wrote; err != nil {
			t.Errorf("write: %v", err)
		}
		_, err = c.Write([]byte("x"))
		checkOpError(t, err, "write", syscall.EPIPE)
		if _, err := s.Write([]byte("late")); err != nil {
			t.Error(err)
		}
		var b [4]byte
		if _, err := io.ReadFull(c, b[:]); string(b[:]) != "late" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
		_ = s.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if _, err := c.Read(b[:]); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestShutdownEndsWithContext has a peer that does not read: Shutdown returns the error of its context, soon after its end, and the
// peer sees a reset.
func TestShutdownEndsWithContext(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	c, s := x.pair(t)
	_ = s.SetReadBuffer(8 << 10)
	if _, err := c.Write(make([]byte, 100_000)); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	ctx := soon(t, 200*time.Millisecond)
	within(t, 20*time.Second, "shutdown", func() {
		if err := x.a.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) || ctx.Err() == nil {
			t.Errorf("%v", err)
		}
	})
	within(t, 5*time.Second, "reset", func() {
		if _, err := io.Copy(io.Discard, s); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%v, want a reset", err)
		}
	})
}

// TestShutdownTakesNoMore lists what fails while a stack shuts down, and what still works.
func TestShutdownTakesNoMore(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	l, err := x.a.Listen("tcp", addrA+":80")
	if err != nil {
		t.Fatal(err)
	}
	u, err := x.a.ListenPacket("udp", addrA+":53")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		accepted <- err
	}()
	c, s := x.pair(t)
	_ = s.SetReadBuffer(8 << 10)
	if _, err := c.Write(make([]byte, 100_000)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- x.a.Shutdown(soon(t, 30*time.Second)) }()
	within(t, 10*time.Second, "shutdown", func() {
		if err := <-accepted; !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept: %v", err)
		}
		eventually(t, "the connection is not ending", func() bool {
			info, err := c.Info()
			return err == nil && info.State == tcp.StateFinWait1
		})
		if _, err := x.a.Dial("tcp", addrB+":80"); !errors.Is(err, net.ErrClosed) {
			t.Errorf("dial: %v", err)
		}
		if _, err := x.a.Listen("tcp", addrA+":81"); !errors.Is(err, net.ErrClosed) {
			t.Errorf("listen: %v", err)
		}
		if _, err := u.WriteTo([]byte("x"), &net.UDPAddr{IP: net.ParseIP(addrB), Port: 9}); err != nil {
			t.Errorf("a UDP socket is closed early: %v", err)
		}
		// Close ends it at once.
		if err := x.a.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := errors.Join(x.a.Shutdown(context.Background()), x.a.Close()); err != nil {
			t.Error(err)
		}
	})
}

// TestShutdownWithIdlePeers has connections open on which nothing happens: the peers see the end, answer, and nobody sees a
// reset. One that keeps its end open does not hold Shutdown up for long.
func TestShutdownWithIdlePeers(t *testing.T) {
	for name, stays := range map[string]bool{"closes": false, "stays": true} {
		t.Run(name, func(t *testing.T) {
			x := newTestbed(t, testbedConfig{})
			_, s := x.pair(t)
			ended := make(chan error, 1)
			go func() { ended <- x.a.Shutdown(soon(t, time.Hour)) }()
			within(t, 20*time.Second, "shutdown", func() {
				if n, err := s.Read(make([]byte, 1)); n != 0 || err != io.EOF {
					t.Errorf("%d, %v", n, err)
				}
				if !stays {
					_ = s.Close()
				}
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
			if stats, _ := x.a.Stats(); stays == (stats.ResetsOut == 0) {
				t.Errorf("%d resets left", stats.ResetsOut)
			}
		})
	}
}

// TestShutdownOfHTTPServer is the order for programs: first the server, then the stack. A response that is under way comes whole.
func TestShutdownOfHTTPServer(t *testing.T) {
	x := newTestbed(t, testbedConfig{})
	l, err := x.a.Listen("tcp", addrA+":80")
	if err != nil {
		t.Fatal(err)
	}
	const size = 3 << 20
	begun, finish := make(chan bool), make(chan bool)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun <- true
		<-finish
		_, _ = w.Write(make([]byte, size))
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	client := &http.Client{Transport: &http.Transport{DialContext: x.b.DialContext}}
	got := make(chan int64, 1)
	go func() {
		r, err := client.Get("http://" + addrA + "/")
		if err != nil {
			t.Error(err)
			got <- 0
			return
		}
		defer r.Body.Close()
		n, _ := io.Copy(io.Discard, r.Body)
		got <- n
	}()
	<-begun
	time.AfterFunc(50*time.Millisecond, func() { close(finish) })
	within(t, 10*time.Second, "shutdown", func() {
		if err := errors.Join(server.Shutdown(soon(t, 5*time.Second)), x.a.Shutdown(soon(t, 5*time.Second))); err != nil {
			t.Error(err)
		}
		if n := <-got; n != size {
			t.Errorf("%d of %d bytes came", n, size)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}
