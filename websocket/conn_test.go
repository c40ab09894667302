package websocket

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/nettest"
)

// patience bounds every wait of a test.
const patience = 20 * time.Second

// tcpPair returns the ends of a TCP connection over loopback.
func tcpPair(t testing.TB) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// connPair returns a client and a server over TCP.
func connPair(t testing.TB, o ConnOptions) (client, server *Conn) {
	a, b := tcpPair(t)
	return NewConn(a, Client, o), NewConn(b, Server, o)
}

// rawPeer returns a connection of the role and the stream of its peer, which has a deadline.
func rawPeer(t testing.TB, role Role, o ConnOptions) (*Conn, *net.TCPConn) {
	a, b := tcpPair(t)
	_ = b.SetDeadline(time.Now().Add(patience))
	return NewConn(a, role, o), b.(*net.TCPConn)
}

// wait fails the test if done is not closed in time.
func wait(t testing.TB, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		buf := make([]byte, 1<<16)
		t.Fatalf("%s takes too long\n%s", what, buf[:runtime.Stack(buf, true)])
	}
}

// async runs f and returns a channel that is closed when it returns.
func async(f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	return done
}

// echoAll returns messages until the connection ends.
func echoAll(c *Conn) error {
	var buf []byte
	for {
		op, p, err := c.ReadMessage(buf)
		if err != nil {
			return err
		}
		if err := c.WriteMessage(op, p); err != nil {
			return err
		}
		buf = p
	}
}

var deflates = map[string]Deflate{
	"plain":       {},
	"takeover":    {Enabled: true},
	"no takeover": {Enabled: true, ServerNoTakeover: true, ClientNoTakeover: true},
	"compact":     {Enabled: true, Compact: true},
	"windows":     {Enabled: true, ServerWindowBits: 9, ClientWindowBits: 8},
}

func TestEchoOfEverySize(t *testing.T) {
	for name, deflate := range deflates {
		t.Run(name, func(t *testing.T) {
			client, server := connPair(t, ConnOptions{Deflate: deflate})
			done := async(func() {
				var closed *CloseError
				if err := echoAll(server); !errors.As(err, &closed) || closed.Code != CloseNormal || closed.Reason != "bye" {
					t.Errorf("the server ends with %v", err)
				}
			})
			var buf []byte
			for _, size := range []int{0, 1, 125, 126, 127, 1000, 4081, 4082, 4083, 4096, 4100, 65535, 65536, 300_000} {
				text := bytes.Repeat([]byte("Grüße, "), size/9+1)[:size]
				op := Binary
				if size%9 == 0 {
					op = Text
				}
				sent := async(func() {
					if err := client.WriteMessage(op, text); err != nil {
						t.Error(err)
					}
				})
				got, p, err := client.ReadMessage(buf)
				if err != nil || got != op || !bytes.Equal(p, text) {
					t.Fatalf("%d bytes: %v of %d bytes, %v", size, got, len(p), err)
				}
				wait(t, "sending", sent)
				buf = p
			}
			if err := client.Close(CloseNormal, "bye"); err != nil {
				t.Error(err)
			}
			wait(t, "the server", done)
		})
	}
}

func TestReaderAndWriterOfMessages(t *testing.T) {
	for name, deflate := range deflates {
		t.Run(name, func(t *testing.T) {
			client, server := connPair(t, ConnOptions{Deflate: deflate, WriteBuffer: 300})
			content := strings.Repeat("0123456789", 1000)
			done := async(func() {
				for range 2 {
					w, err := server.NextWriter(Text)
					if err != nil {
						t.Error(err)
						return
					}
					for _, part := range []string{content[:1], content[1:500], content[500:]} {
						if n, err := io.WriteString(w, part); n != len(part) || err != nil {
							t.Errorf("%d of %d bytes, %v", n, len(part), err)
						}
						if err := server.control(opPing, []byte(part[:1])); err != nil {
							t.Error(err)
						}
					}
					if err := w.Close(); err != nil {
						t.Error(err)
					}
					if _, err := w.Write(nil); err != ErrWriterClosed {
						t.Errorf("write after Close: %v", err)
					}
					if err := w.Close(); err != ErrWriterClosed {
						t.Errorf("second Close: %v", err)
					}
				}
				_ = server.WriteMessage(Binary, []byte("last"))
			})
			// The first message is read in part: the rest must not show in the next.
			op, r, err := client.NextReader()
			if err != nil || op != Text {
				t.Fatal(op, err)
			}
			head := make([]byte, 777)
			if _, err := io.ReadFull(r, head); err != nil || string(head) != content[:777] {
				t.Fatalf("%q, %v", head, err)
			}
			if _, r, err = client.NextReader(); err != nil {
				t.Fatal(err)
			}
			all, err := io.ReadAll(r)
			if err != nil || string(all) != content {
				t.Fatalf("%d bytes, %v", len(all), err)
			}
			if n, err := r.Read(head); n != 0 || err != io.EOF {
				t.Errorf("after the end: %d, %v", n, err)
			}
			if op, p, err := client.ReadMessage(nil); op != Binary || string(p) != "last" || err != nil {
				t.Errorf("%v %q %v", op, p, err)
			}
			wait(t, "the writer", done)
		})
	}
}

func TestMessagesOfManyGoroutinesStayWhole(t *testing.T) {
	client, server := connPair(t, ConnOptions{Deflate: Deflate{Enabled: true}})
	const writers, each = 8, 50
	var group sync.WaitGroup
	for id := range writers {
		group.Go(func() {
			for i := range each {
				text := bytes.Repeat([]byte{byte('a' + id)}, 10+i*300)
				var err error
				if i%2 == 0 {
					err = client.WriteMessage(Text, text)
				} else if w, e := client.NextWriter(Text); e == nil {
					_, err = w.Write(text)
					err = errors.Join(err, w.Close())
				}
				if err != nil {
					t.Error(err)
				}
				if i%10 == 0 {
					ctx, cancel := context.WithTimeout(context.Background(), patience)
					if err := client.Ping(ctx); err != nil {
						t.Error("ping:", err)
					}
					cancel()
				}
			}
		})
	}
	reading := async(func() {
		_, _, err := client.ReadMessage(nil) // handles pongs
		if !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	count := map[byte]int{}
	for range writers * each {
		_, p, err := server.ReadMessage(nil)
		if err != nil {
			t.Fatal(err)
		}
		if want := 10 + count[p[0]]*300; len(p) != want || bytes.Count(p, p[:1]) != want {
			t.Fatalf("message of %q: %d bytes, want %d", p[0], len(p), want)
		}
		count[p[0]]++
	}
	answering := async(func() { _, _, _ = server.ReadMessage(nil) }) // the last pings
	wait(t, "the writers", async(group.Wait))
	_ = client.CloseNow()
	wait(t, "the reader", reading)
	wait(t, "the server", answering)
}

func TestNetConn(t *testing.T) {
	for name, pair := range map[string]func(t *testing.T) (a, b net.Conn){
		"tcp":  func(t *testing.T) (a, b net.Conn) { return tcpPair(t) },
		"pipe": func(t *testing.T) (a, b net.Conn) { return net.Pipe() },
	} {
		t.Run(name, func(t *testing.T) {
			nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
				a, b := pair(t)
				o := ConnOptions{}
				c1 = NetConn(context.Background(), NewConn(a, Client, o), Binary)
				c2 = NetConn(context.Background(), NewConn(b, Server, o), Binary)
				return c1, c2, func() {
					var both sync.WaitGroup
					both.Go(func() { c1.Close() })
					both.Go(func() { c2.Close() })
					both.Wait()
				}, nil
			})
		})
	}
}

func TestNetConnEndsByContextTypeAndClose(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	client, server := connPair(t, ConnOptions{})
	a := NetConn(ctx, client, Text)
	cancel()
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after the end of the context: %v", err)
	}
	_ = server.CloseNow()

	client, server = connPair(t, ConnOptions{})
	a, b := NetConn(context.Background(), client, Text), NetConn(context.Background(), server, Binary)
	done := async(func() { _, _ = b.Read(make([]byte, 1)) })
	if _, err := a.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	var closed *CloseError
	if _, err := a.Read(make([]byte, 1)); !errors.As(err, &closed) || closed.Code != CloseUnsupportedData {
		t.Errorf("after a message of the wrong type: %v", err)
	}
	wait(t, "the reader", done)

	for code, want := range map[CloseCode]bool{CloseNormal: true, CloseGoingAway: true, CloseNoStatus: true, CloseInternalError: false} {
		client, server = connPair(t, ConnOptions{})
		done := async(func() { _ = server.Close(code, "") })
		_, err := NetConn(context.Background(), client, Text).Read(make([]byte, 1))
		if (err == io.EOF) != want {
			t.Errorf("close with %v: %v", code, err)
		}
		wait(t, "Close", done)
	}
}

func TestConnAllocatesNothing(t *testing.T) {
	for name, deflate := range deflates {
		if raceEnabled && deflate.Enabled {
			continue // the race detector has pools lose what they keep
		}
		client, server := connPair(t, ConnOptions{Deflate: deflate})
		done := async(func() { _ = echoAll(server) })
		small, large := make([]byte, 64), bytes.Repeat([]byte("large and compressible "), 1000)
		buf := make([]byte, 0, 2*len(large))
		step := func(text []byte) func() {
			return func() {
				if err := client.WriteMessage(Binary, text); err != nil {
					t.Fatal(err)
				}
				_, p, err := client.ReadMessage(buf)
				if err != nil || !bytes.Equal(p, text) {
					t.Fatal(len(p), err)
				}
			}
		}
		for _, text := range [][]byte{small, large} {
			for range 100 {
				step(text)()
			}
			if n := testing.AllocsPerRun(300, step(text)); n != 0 {
				t.Errorf("%s: %v allocations for an echo of %d bytes", name, n, len(text))
			}
		}
		_ = client.CloseNow()
		wait(t, "the server", done)
	}
}

func TestDeadlinesInterruptAndLoseNothing(t *testing.T) {
	client, server := connPair(t, ConnOptions{})
	_ = client.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if _, _, err := client.ReadMessage(nil); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read: %v", err)
	}
	_ = client.SetReadDeadline(time.Time{})
	// The peer does not read: at some time a message is cut. All that were begun must arrive whole.
	for _, c := range []*Conn{client, server} {
		text := bytes.Repeat([]byte{'x'}, 100_000)
		_ = c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		sent := 0
		for {
			if err := c.WriteMessage(Text, text); err != nil {
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatalf("write: %v", err)
				}
				break
			}
			sent++
		}
		_ = c.SetWriteDeadline(time.Time{})
		done := async(func() {
			if err := c.WriteMessage(Text, []byte("end")); err != nil {
				t.Error(err)
			}
		})
		peer := server
		if c == server {
			peer = client
		}
		got := 0
		for {
			_, p, err := peer.ReadMessage(nil)
			if err != nil {
				t.Fatal(err)
			}
			if string(p) == "end" {
				break
			}
			if !bytes.Equal(p, text) {
				t.Fatalf("message %d has %d bytes", got, len(p))
			}
			got++
		}
		if got != sent && got != sent+1 {
			t.Errorf("%v: %d messages arrived, %d were sent", c.Role(), got, sent)
		}
		wait(t, "the writer", done)
	}
}

// noDeadlines is a stream that is only an io.ReadWriteCloser.
type noDeadlines struct{ io.ReadWriteCloser }

func TestStreamWithoutDeadlines(t *testing.T) {
	a, b := tcpPair(t)
	client, server := NewConn(noDeadlines{a}, Client, ConnOptions{}), NewConn(noDeadlines{b}, Server, ConnOptions{})
	if err := client.SetReadDeadline(time.Time{}); err != os.ErrNoDeadline {
		t.Error(err)
	}
	if err := client.SetWriteDeadline(time.Time{}); err != os.ErrNoDeadline {
		t.Error(err)
	}
	done := async(func() { _ = echoAll(server) })
	_ = client.control(opPing, nil)
	if err := client.Close(CloseNormal, ""); err != nil {
		t.Error(err)
	}
	wait(t, "the server", done)
}
