package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/l7/link"
)

// Requests in progress are answered after Drain, idle connections end, and there are no new ones.
func TestDrain(t *testing.T) {
	arrived, goOn := make(chan struct{}, 2), make(chan struct{})
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/slow" {
			arrived <- struct{}{}
			<-goOn
		}
		fmt.Fprint(w, "ok")
	}))
	defer backend.Close()
	r := newRig(t, strings.TrimPrefix(backend.URL, "http://"), nil)
	idle, err := net.Dial("tcp", r.addr)
	must(t, err)
	defer idle.Close()
	io.WriteString(idle, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	_, err = idle.Read(make([]byte, 4096))
	must(t, err)
	got := make(chan error, 2)
	for _, h2 := range []bool{false, true} {
		c := r.client(h2)
		go func() {
			resp, err := c.Get("https://" + r.secure + "/slow")
			if err == nil {
				var body []byte
				if body, err = io.ReadAll(resp.Body); err == nil && string(body) != "ok" {
					err = fmt.Errorf("%d %q", resp.StatusCode, body)
				}
				resp.Body.Close()
			}
			got <- err
		}()
		<-arrived
	}
	r.do(r.worker.Drain)
	if _, err := net.Dial("tcp", r.addr); err == nil {
		t.Error("a new connection after Drain")
	}
	idle.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := idle.Read(make([]byte, 100)); err != io.EOF {
		t.Errorf("an idle connection: %d bytes, %v", n, err)
	}
	close(goOn)
	for range 2 {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		var done bool
		if r.do(func() { done = r.worker.Idle() }); done {
			break
		}
		if time.Now().After(end) {
			t.Fatal("connections are left")
		}
	}
}

// An idle connection takes little memory: 4 KB plain, 10 KB with TLS.
func TestIdleConnectionsAreSmall(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector changes sizes")
	}
	const n = 500
	r := newRig(t, rawBackend(t), nil)
	heap := func() uint64 {
		var m runtime.MemStats
		for range 3 {
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	before := heap()
	for range n {
		c, err := net.Dial("tcp", r.addr)
		must(t, err)
		defer c.Close()
		once := client1(t, c)
		once()
	}
	time.Sleep(link.CompactTime + 500*time.Millisecond)
	after := heap()
	per := (after - before) / n
	t.Logf("%d bytes for each idle connection, both ends", per)
	if per > 4<<10 {
		t.Errorf("%d bytes for each idle connection", per)
	}
}

// A listener that serves HTTP/3 alone after a reload takes no connections of TCP any more; those that are open go on.
func TestAListenerThatBecomesHTTP3Alone(t *testing.T) {
	r := newRig(t, echoBackend(t, false), nil)
	c, err := net.Dial("tcp", r.addr)
	must(t, err)
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	ask := func() {
		t.Helper()
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if n, err := c.Read(make([]byte, 4096)); err != nil || n == 0 {
			t.Errorf("%d bytes, %v", n, err)
		}
	}
	ask()
	tree := *r.tree
	next := *tree.Listeners[1]
	next.Name, next.Address, next.HTTP1, next.HTTP2, next.HTTP3 = tree.Listeners[0].Name, tree.Listeners[0].Address, nil, nil, &HTTP3Options{}
	tree.Listeners = []*Listener{&next, tree.Listeners[1]}
	must(t, r.apply(&tree))
	if d, err := net.Dial("tcp", r.addr); err == nil {
		d.Close()
		t.Error("a connection of TCP is accepted")
	}
	ask()
	r.settled()
}
