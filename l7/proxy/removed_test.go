package proxy

import (
	"bufio"
	ctls "crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// dialed returns a connection to an address, which has time for the test.
func dialed(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// asked sends a request on a connection, and returns the response.
func asked(c net.Conn) (*http.Response, error) {
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		return nil, err
	}
	return http.ReadResponse(bufio.NewReader(c), nil)
}

// Apply with an address that is taken leaves all as it was: what it would remove, and what it has opened already.
func TestApplyWithAnAddressThatIsTaken(t *testing.T) {
	r := newRig(t, echoBackend(t, false), nil)
	open := dialed(t, r.addr)
	_, err := asked(open)
	must(t, err)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer taken.Close()
	fresh, wrong := *r.tree.Listeners[0], *r.tree.Listeners[0]
	fresh.Name, fresh.Address = "fresh", free(t)
	wrong.Name, wrong.Address = "wrong", taken.Addr().(*net.TCPAddr).AddrPort()
	secure := *r.tree.Listeners[1]
	r.do(func() { err = r.worker.Apply(&Tree{Listeners: []*Listener{&fresh, &secure, &wrong}}) })
	if err == nil {
		t.Fatal("no error")
	}
	if c, err := net.Dial("tcp", fresh.Address.String()); err == nil {
		c.Close()
		t.Error("a new listener is left")
	}
	r.do(func() {
		if n := len(r.worker.listeners); n != 2 || r.worker.tree != r.tree || !r.worker.pools[r.pool] {
			t.Errorf("%d listeners, tree %p", n, r.worker.tree)
		}
		for _, l := range r.worker.listeners {
			if l.current == &secure {
				t.Error("a listener has its new rules")
			}
		}
	})
	for _, c := range []net.Conn{open, dialed(t, r.addr)} {
		if resp, err := asked(c); err != nil || resp.StatusCode != 200 || resp.Close {
			t.Errorf("%v, %v", resp, err)
		}
	}
}

// Connections at a listener that was removed end: with the next request, or without one, and at the end of the drain time.
func TestRemovedListenerDrains(t *testing.T) {
	addr, arrived, goOn := heldBackend(t)
	r := newRig(t, addr, func(r *rig) { r.tree.Listeners[0].Timeouts.Drain = time.Second })
	idle, next, busy, two := dialed(t, r.addr), dialed(t, r.addr), dialed(t, r.addr), dialed(t, r.addr)
	for _, c := range []net.Conn{idle, next} {
		goOn <- true
		_, err := asked(c)
		must(t, err)
		<-arrived
	}
	io.WriteString(two, http2.ClientPreface)
	f := http2.NewFramer(two, two)
	must(t, f.WriteSettings())
	for settled := false; !settled; {
		fr, err := f.ReadFrame()
		must(t, err)
		s, ok := fr.(*http2.SettingsFrame)
		settled = ok && s.IsAck()
	}
	io.WriteString(busy, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	<-arrived
	r.do(func() {
		io.WriteString(next, "GET / HTTP/1.1\r\nHost: a\r\n\r\n") // it is in the socket
		must(t, r.worker.Apply(&Tree{Listeners: r.tree.Listeners[1:], Pools: r.tree.Pools}))
	})
	goOn <- true
	if _, err := idle.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("an idle connection: %v", err)
	}
	var goAways []uint32
	for {
		fr, err := f.ReadFrame()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			break
		}
		if g, ok := fr.(*http2.GoAwayFrame); ok {
			goAways = append(goAways, g.LastStreamID)
		}
	}
	if fmt.Sprint(goAways) != "[2147483647 0]" {
		t.Errorf("GOAWAY of %v", goAways)
	}
	var lost, closed int // which of the two has the answer that goOn permits is the backend's choice
	for _, c := range []net.Conn{next, busy} {
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		switch {
		case err != nil:
			lost++
		case resp.Close:
			closed++
		}
	}
	if lost != 1 || closed != 1 {
		t.Errorf("%d answers with Connection: close, %d were cut at the end of the drain time", closed, lost)
	}
	goOn <- true
	r.settled()
}

// Drain answers a request that is in the socket, and the first of a connection whose handshake is in progress.
func TestDrainAnswersWhatIsUnderWay(t *testing.T) {
	r := newRig(t, echoBackend(t, false), nil)
	plain, used := dialed(t, r.addr), dialed(t, r.addr)
	_, err := asked(used)
	must(t, err)
	secure := ctls.Client(dialed(t, r.secure), &ctls.Config{RootCAs: r.roots, ServerName: "gateway.test"})
	for open := int64(0); open < 3; time.Sleep(time.Millisecond) {
		r.do(func() { open = int64(len(r.worker.fronts)) })
	}
	r.do(func() {
		for _, c := range []net.Conn{plain, used} {
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		}
		r.worker.Drain()
	})
	for _, c := range []net.Conn{plain, used} {
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != 200 || !resp.Close {
			t.Errorf("%v, %v", resp, err)
		}
	}
	resp, err := asked(secure)
	if err != nil || resp.StatusCode != 200 || !resp.Close {
		t.Errorf("TLS: %v, %v", resp, err)
	}
}
