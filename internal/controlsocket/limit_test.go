package controlsocket

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

func TestRequestsBeyondTheLimitAreRefused(t *testing.T) {
	entered, open := make(chan struct{}, 2), make(chan struct{})
	h := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		entered <- struct{}{}
		<-open
		_, _ = w.Write([]byte("done"))
	}), 2)
	get := func() *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil))
		return rec
	}
	results := make(chan *httptest.ResponseRecorder, 2)
	for range 2 {
		go func() { results <- get() }()
		<-entered
	}
	if rec := get(); rec.Code != http.StatusServiceUnavailable || rec.Header().Get("Retry-After") == "" {
		t.Errorf("a third request at once: %d", rec.Code)
	}
	close(open)
	for range 2 {
		if rec := <-results; rec.Code != http.StatusOK || rec.Body.String() != "done" {
			t.Errorf("%d %s", rec.Code, rec.Body)
		}
	}
	if rec := get(); rec.Code != http.StatusOK {
		t.Errorf("after the others: %d", rec.Code)
	}
}

// deadlines records the write deadlines of an answer.
type deadlines struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlines) SetWriteDeadline(at time.Time) error { d.set = append(d.set, at); return nil }

func TestEveryPieceOfAnAnswerHasADeadline(t *testing.T) {
	d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	text := make([]byte, 3*timedPiece+1)
	limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n, err := w.Write(text); n != len(text) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}), 1).ServeHTTP(d, httptest.NewRequest(http.MethodGet, "/", nil))
	if d.Body.Len() != len(text) || len(d.set) != 5 {
		t.Errorf("%d bytes with %d deadlines, want %d with 5", d.Body.Len(), len(d.set), len(text))
	}
	for _, at := range d.set {
		if left := time.Until(at); left <= 0 || left > writeTimeout {
			t.Errorf("a deadline in %v", left)
		}
	}
}

func TestOpenConnectionsAreLimited(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &limitedListener{Listener: inner, free: make(chan struct{}, 2), closed: make(chan struct{})}
	var accepted atomic.Int32
	conns, ended := make(chan net.Conn, 4), make(chan error, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			accepted.Add(1)
			conns <- c
		}
	}()
	for range 4 {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	first := <-conns
	<-conns
	time.Sleep(20 * time.Millisecond)
	if n := accepted.Load(); n != 2 {
		t.Fatalf("%d connections accepted, want 2", n)
	}
	_, _ = first.Close(), first.Close() // the second close gives no second place
	third := <-conns
	time.Sleep(20 * time.Millisecond)
	if n := accepted.Load(); n != 3 {
		t.Errorf("%d connections accepted, want 3: one has ended", n)
	}
	if err := l.Close(); err != nil { // Accept waits for a place
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	_, _ = io.WriteString(third, "x")
}
