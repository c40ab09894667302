package transport

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/socket"
	"golang.org/x/sys/unix"
)

// pattern returns bytes of which no piece looks like another.
func pattern(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), byte(n >> 16)})
	_, _ = r.Read(b)
	return b
}

func TestEcho(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		var short atomic.Int64
		at, _ := w.listen(func(Conn) Handler {
			e := newEcho(32 << 10)
			e.short = &short
			return e
		})
		var all sync.WaitGroup
		for _, size := range []int{0, 1, 128, 32 << 10, 3 << 20} {
			for range 4 {
				c, data := w.connect(at), pattern(size)
				all.Go(func() {
					_, _ = c.Write(data)
					_ = c.CloseWrite()
				})
				all.Go(func() {
					got, err := io.ReadAll(c)
					if !bytes.Equal(got, data) || err != nil {
						t.Errorf("%d of %d bytes, %v", len(got), len(data), err)
					}
				})
			}
		}
		all.Wait()
		if short.Load() == 0 {
			t.Log("every write found room")
		}
	})
}

// TestPartialWrite: a writer that finds no room is called when there is some, and only then.
func TestPartialWrite(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		data := pattern(fullBuffers)
		type state struct {
			rest            []byte
			short, writable int
		}
		full := make(chan struct{})
		var s state
		at, _ := w.listen(func(c Conn) Handler {
			s.rest = data
			write := func() {
				for len(s.rest) > 0 {
					n, err := c.Write(s.rest)
					if s.rest = s.rest[n:]; err == ErrAgain || err == nil && len(s.rest) > 0 {
						if s.short++; s.short == 1 {
							close(full)
						}
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
				c.Close()
			}
			write()
			return handlerFunc(func(_ Conn, ev Events) {
				if ev&Writable != 0 {
					s.writable++
					write()
				}
			})
		})
		c := w.connect(at)
		next(w, full, "a full send buffer")
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%d of %d bytes, %v", len(got), len(data), err)
		}
		for _, l := range w.servers {
			w.on(l, func() {}) // what the handler wrote is seen
		}
		if s.short == 0 || s.writable != s.short {
			t.Errorf("%d writes found too little room, Writable came %d times", s.short, s.writable)
		}
	})
}

// TestHalfClose: either side may end its direction and go on with the other.
func TestHalfClose(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		// The server reads to the end, then answers; the client, of the same kind, ends first.
		at, _ := w.listen(func(Conn) Handler {
			var got []byte
			ended := false
			return handlerFunc(func(c Conn, ev Events) {
				for !ended {
					b := make([]byte, 1000)
					n, err := c.Read(b)
					if got = append(got, b[:n]...); err == ErrAgain {
						return
					}
					if err == io.EOF {
						ended = true
						if n, err := c.Write(append([]byte("got "), got...)); n != 4+len(got) || err != nil {
							t.Errorf("write after the end of the input: %d, %v", n, err)
						}
						c.Close()
					} else if err != nil {
						t.Error(err)
						c.Close()
						return
					}
				}
			})
		})
		result := make(chan string, 1)
		var reply []byte
		sent := false
		w.dial(at, handlerFunc(func(c Conn, ev Events) {
			if ev&Writable != 0 && !sent {
				sent = true
				if n, err := c.Write([]byte("request")); n != 7 || err != nil {
					t.Error(n, err)
				}
				if err := c.CloseWrite(); err != nil {
					t.Error(err)
				}
				if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
					t.Errorf("write after CloseWrite: %v", err)
				}
			}
			for {
				b := make([]byte, 1000)
				n, err := c.Read(b)
				if reply = append(reply, b[:n]...); err == ErrAgain {
					return
				}
				if err != nil {
					if err != io.EOF {
						t.Error(err)
					}
					c.Close()
					result <- string(reply)
					return
				}
			}
		}))
		if got := next(w, result, "the reply"); got != "got request" {
			t.Errorf("got %q", got)
		}
	})
}

// TestShortReadIsFollowedByTheEnd: a handler that stops after a read of less than its buffer learns of the end of the
// input, also where that came with the bytes.
func TestShortReadIsFollowedByTheEnd(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		for range 20 {
			var mu sync.Mutex
			var hold sync.WaitGroup
			hold.Add(1)
			end := make(chan error, 1)
			at, list := w.listen(func(Conn) Handler {
				return handlerFunc(func(c Conn, ev Events) {
					hold.Wait() // until the end has arrived, too
					mu.Lock()
					defer mu.Unlock()
					if n, err := c.Read(make([]byte, 100)); n == 0 && err != ErrAgain {
						end <- err
						c.Close()
					}
				})
			})
			c := w.connect(at)
			_, _ = c.Write([]byte("hello"))
			_ = c.CloseWrite()
			hold.Done()
			if err := next(w, end, "the end"); err != io.EOF {
				t.Fatal(err)
			}
			for i, li := range list {
				w.on(w.servers[i], li.Close)
			}
		}
	})
}

// TestReset: what arrived before a reset can be read, and Failed comes once.
func TestReset(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		type end struct {
			got    string
			failed int
			errs   [3]error
		}
		arrived, done := make(chan struct{}, 1), make(chan end, 1)
		var e end
		at, _ := w.listen(func(Conn) Handler {
			return handlerFunc(func(c Conn, ev Events) {
				if ev&Failed == 0 {
					arrived <- struct{}{}
					return // without reading
				}
				e.failed++
				b := make([]byte, 100)
				n, err := c.Read(b)
				e.got = string(b[:n])
				if err == nil {
					_, err = c.Read(b)
				}
				e.errs[0] = err
				_, e.errs[1] = c.Write([]byte("x"))
				e.errs[2] = c.Err()
				c.Close()
				done <- e
			})
		})
		c := w.connect(at)
		_, _ = c.Write([]byte("hello"))
		next(w, arrived, "data")
		_ = c.SetLinger(0)
		_ = c.Close()
		got := next(w, done, "the reset")
		if got.got != "hello" || got.failed != 1 {
			t.Errorf("%q, Failed came %d times", got.got, got.failed)
		}
		for i, err := range got.errs {
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("error %d: %v", i, err)
			}
		}
	})
}

// TestFailedComesOnce: also where the handler goes on with the connection.
func TestFailedComesOnce(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		hold, done := make(chan struct{}), make(chan struct{})
		failures, b := 0, make([]byte, 100)
		at, _ := w.listen(func(Conn) Handler {
			return handlerFunc(func(c Conn, ev Events) {
				if ev&Failed != 0 {
					failures++
				}
				if n, err := c.Read(b); n == 0 && errors.Is(err, syscall.ECONNRESET) {
					c.Close()
					close(done)
				}
			})
		})
		c := w.connect(at)
		for _, l := range w.servers {
			w.on(l, func() {})
			l.Do(func() { <-hold })
		}
		_, _ = c.Write([]byte("hello"))
		time.Sleep(10 * time.Millisecond) // a stack sends with its next iteration
		_ = c.SetLinger(0)
		_ = c.Close()
		time.Sleep(10 * time.Millisecond)
		close(hold)
		next(w, done, "the reset")
		if failures != 1 {
			t.Errorf("Failed came %d times", failures)
		}
	})
}

// TestResetAfterTheEnd: the input was complete, and reads say so.
func TestResetAfterTheEnd(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		ended, done := make(chan struct{}), make(chan [3]error, 1)
		var readErr error
		at, _ := w.listen(func(Conn) Handler {
			return handlerFunc(func(c Conn, ev Events) {
				b := make([]byte, 100)
				if ev&Failed != 0 {
					_, e1 := c.Read(b)
					_, e2 := c.Write(b)
					done <- [3]error{e1, e2, c.Err()}
					c.Close()
					return
				}
				if n, err := c.Read(b); n == 0 && readErr == nil && err != ErrAgain {
					readErr = err
					close(ended)
				}
			})
		})
		c := w.connect(at)
		_, _ = c.Write([]byte("hello"))
		_ = c.CloseWrite()
		next(w, ended, "the end")
		_ = c.SetLinger(0)
		_ = c.Close()
		errs := next(w, done, "the reset")
		if readErr != io.EOF || errs[0] != io.EOF || !errors.Is(errs[1], syscall.EPIPE) || !errors.Is(errs[2], syscall.EPIPE) {
			t.Error(readErr, errs)
		}
	})
}

// TestRefused: a dial that fails reports Failed alone.
func TestRefused(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		at, list := w.listen(func(Conn) Handler { return nil })
		for i, li := range list {
			w.on(w.servers[i], li.Close)
		}
		events := make(chan Events, 10)
		c := w.dial(at, handlerFunc(func(_ Conn, ev Events) { events <- ev }))
		if ev := next(w, events, "the refusal"); ev != Failed {
			t.Errorf("events %b, want Failed", ev)
		}
		w.on(w.client, func() {
			_, readErr := c.Read(make([]byte, 1))
			_, writeErr := c.Write([]byte("x"))
			for _, err := range []error{c.Err(), readErr, writeErr} {
				if !errors.Is(err, syscall.ECONNREFUSED) {
					t.Error(err)
				}
			}
			c.Close()
			if !errors.Is(c.Err(), syscall.ECONNREFUSED) {
				t.Errorf("after Close: %v", c.Err())
			}
		})
	})
}

// TestUrgentData: the urgent byte is one of the stream (RFC 6093), and after a read that stops before it, Readable comes
// for the rest.
func TestUrgentData(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		for _, relayed := range []bool{false, true} {
			hold, done := make(chan struct{}), make(chan struct{})
			got, b := "", make([]byte, 100)
			at, _ := w.listen(func(c Conn) Handler {
				return handlerFunc(func(_ Conn, ev Events) {
					if relayed {
						_, _, _ = c.Relay(c, 100) // it comes back
						return
					}
					if n, _ := c.Read(b); n > 0 {
						if got += string(b[:n]); len(got) == 5 {
							close(done)
						}
					}
				})
			})
			c := w.connect(at)
			for _, l := range w.servers { // until all has arrived
				w.on(l, func() {})
				l.Do(func() { <-hold })
			}
			sendUrgent(t, c, "abc")
			if _, err := c.Write([]byte("de")); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
			close(hold)
			if relayed {
				back := make([]byte, 5)
				if _, err := io.ReadFull(c, back); err != nil {
					t.Error(err)
				}
				got = string(back)
			} else {
				next(w, done, "the bytes")
			}
			if got != "abcde" {
				t.Errorf("relayed %v: %q", relayed, got)
			}
		}
	})
}

// TestUrgentDataWhileSignalsArrive: Linux reads nothing at the urgent mark while the thread has a signal pending (tcp_recvmsg), and
// reports no further edge.
func TestUrgentDataWhileSignalsArrive(t *testing.T) {
	w := newEpollWorld(t, 1, "127.0.0.1:0")
	arrived, b, total := make(chan struct{}, 1), make([]byte, 100), 0
	at, _ := w.listen(func(c Conn) Handler {
		return handlerFunc(func(_ Conn, ev Events) {
			n, _ := c.Read(b)
			if total += n; n > 0 && total%len("abcde") == 0 {
				arrived <- struct{}{}
			}
		})
	})
	c := w.connect(at)
	ended, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		interruptThreads(stop)
	}()
	defer func() { close(stop); <-ended }()
	for range 500 {
		sendUrgent(t, c, "abc")
		if _, err := c.Write([]byte("de")); err != nil {
			t.Error(err)
		}
		next(w, arrived, "the bytes")
	}
}

// interruptThreads sends the signal of preemption to all threads of the process until stop is closed.
func interruptThreads(stop <-chan struct{}) {
	for {
		threads, _ := os.ReadDir("/proc/self/task")
		for range 20 {
			for _, thread := range threads {
				select {
				case <-stop:
					return
				default:
				}
				if id, err := strconv.Atoi(thread.Name()); err == nil {
					_ = unix.Tgkill(os.Getpid(), id, unix.SIGURG) // the thread may have ended
				}
			}
		}
	}
}

// sendUrgent sends s, whose last byte is urgent.
func sendUrgent(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if ours, ok := c.(*socket.TCPConn); ok {
		if _, err := ours.WriteWith([]byte(s), socket.SendOutOfBand); err != nil {
			t.Fatal(err)
		}
		return
	}
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		if err := unix.Sendto(int(fd), []byte(s), unix.MSG_OOB, nil); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Error(err)
	}
}
