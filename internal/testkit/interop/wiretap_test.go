package interop

import (
	"bytes"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
)

// wiretap passes connections on and keeps their bytes: what a program really sent and received, whatever it reports.
type wiretap struct {
	t    testing.TB
	addr string
	to   string

	mu      sync.Mutex
	forward bytes.Buffer // of all connections, to the server
	back    bytes.Buffer
}

// tapped returns a wiretap in front of an address.
func tapped(t testing.TB, to string) *wiretap {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	w := &wiretap{t: t, addr: l.Addr().String(), to: to}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go w.relay(c.(*net.TCPConn))
		}
	}()
	return w
}

// relay passes one connection on, each direction until its end.
func (w *wiretap) relay(client *net.TCPConn) {
	defer client.Close()
	s, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	server := s.(*net.TCPConn)
	defer server.Close()
	var both sync.WaitGroup
	pass := func(to, from *net.TCPConn, kept *bytes.Buffer) {
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			w.mu.Lock()
			kept.Write(buf[:n])
			w.mu.Unlock()
			if _, wrong := to.Write(buf[:n]); wrong != nil {
				break
			}
			if err != nil {
				if err != io.EOF {
					to.SetLinger(0) //nolint:errcheck // a reset is passed on as one
				}
				break
			}
		}
		to.CloseWrite() //nolint:errcheck // it may be closed
	}
	both.Go(func() { pass(server, client, &w.forward) })
	both.Go(func() { pass(client, server, &w.back) })
	both.Wait()
}

// sent returns what clients have sent, and forgets it.
func (w *wiretap) sent() string { return w.take(&w.forward) }

// received returns what clients have received, and forgets it.
func (w *wiretap) received() string { return w.take(&w.back) }

func (w *wiretap) take(b *bytes.Buffer) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := b.String()
	b.Reset()
	return s
}

// headOf returns the first header in a text and what follows it.
func headOf(text string) (head, rest string) {
	head, rest, _ = strings.Cut(text, "\r\n\r\n")
	return head + "\r\n", rest
}

func writeFile(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// needsProgram is needs for programs of which one is no dependency of the project.
func needsProgram(t *testing.T, name string) {
	t.Helper()
	how := "make deps"
	if name == "python3" {
		how = "apt install python3"
	}
	needs(t, name, how)
}
