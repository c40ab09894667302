package controlsocket

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
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
	l := limitConns(inner, 2)
	conns, ended := make(chan *limitedConn, 4), make(chan error, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			c.(*limitedConn).serve() // all are answered: none may be closed for another
			conns <- c.(*limitedConn)
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
	if len(conns) != 0 {
		t.Fatal("a third connection was accepted")
	}
	_, _ = first.Close(), first.Close() // the second close gives no second place
	<-conns
	time.Sleep(20 * time.Millisecond)
	if len(conns) != 0 {
		t.Error("a fourth connection was accepted: one has ended")
	}
	if first.serve() {
		t.Error("a closed connection is served")
	}
	if err := l.Close(); err != nil { // Accept waits for a place
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// Where all places are taken, the connection goes that has waited for a request for the longest, and none that is answered.
func TestTheOldestConnectionWithoutARequestIsClosed(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := limitConns(inner, 3)
	defer l.Close()
	var far, near []net.Conn
	for i := range 5 {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		a, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		far, near = append(far, c), append(near, a)
		switch i {
		case 0:
			a.(*limitedConn).serve()
		case 1: // answered, and then waiting again: it is the youngest of the three
			a.(*limitedConn).serve()
		case 2:
			near[1].(*limitedConn).await()
		}
	}
	for i, closed := range []bool{false, true, true, false, false} {
		_ = far[i].SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if closed {
			_ = far[i].SetReadDeadline(time.Now().Add(time.Minute))
		}
		_, err := far[i].Read(make([]byte, 1))
		if (err == io.EOF) != closed {
			t.Errorf("connection %d: %v", i, err)
		}
	}
}

// Clients that send half a request, of its header or of its body, stop no whole one, however many they are.
func TestHalfSentRequestsStopNoOther(t *testing.T) {
	path := t.TempDir() + "/control.sock"
	l, err := Listen(path, errors.New("in use"))
	if err != nil {
		t.Fatal(err)
	}
	srv := NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		Reply(w, map[string]any{"read": len(body), "error": err})
	}), maxRequests, slog.New(slog.DiscardHandler))
	srv.ReadHeaderTimeout, srv.ReadTimeout = time.Hour, time.Hour // which alone would let others in
	done := make(chan error, 1)
	go func() { done <- srv.Serve(LimitConns(l)) }()
	defer func() { srv.Close(); <-done }()
	for i := range 2 * maxConns {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		half := "GET /v1/status HTTP/1.1\r\nHost: x\r\n"
		if i%2 == 0 {
			half = "POST /v1/reload HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf"
		}
		if _, err := io.WriteString(c, half); err != nil && i > maxConns {
			t.Fatal(err)
		}
	}
	client := NewClient(path, Server{NotRunning: errors.New("not running")})
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	for range 20 {
		var answer struct{ Read int }
		if err := client.Call(ctx, http.MethodPost, "/v1/status", "text", &answer); err != nil || answer.Read != len(`"text"`) {
			t.Fatal(answer, err)
		}
	}
	err = client.Call(ctx, http.MethodPost, "/v1/status", strings.Repeat("x", maxBody), nil)
	if e := (*Error)(nil); !errors.As(err, &e) || e.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a request that is too long: %v", err)
	}
}
