package http2

//lint:file-ignore SA1019 x/net's HTTP/2 is a peer here: net/http has no extended CONNECT and no Upgrade to h2c

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"

	"github.com/millrace/millrace/semantics"
)

// driver drives a machine over a net.Conn, for tests: one goroutine reads, and mu guards the machine.
// Frames reach the connection in the order in which the machine made them, as HPACK demands, so
// writing is held from before the frames are taken until they are written.
type driver struct {
	writing sync.Mutex // taken before mu
	mu      sync.Mutex
	m       *Machine
	c       net.Conn
	handle  func(ev Event) // with mu held
	out     []byte
	queued  map[*Stream]*queue
}

// queue is content that waits for a window.
type queue struct {
	p        []byte
	end      bool
	trailers []semantics.Field
}

func newDriver(m *Machine, c net.Conn) *driver {
	return &driver{m: m, c: c, queued: map[*Stream]*queue{}}
}

// run reads until the connection ends.
func (d *driver) run() error {
	d.flush()
	buf := make([]byte, 4096)
	for {
		n, err := d.c.Read(buf)
		d.mu.Lock()
		for in := buf[:n]; ; {
			ev, used, err := d.m.Input(in)
			if err != nil {
				d.mu.Unlock()
				d.flush()
				return err
			}
			if in = in[used:]; ev.Kind == NeedInput {
				break
			}
			if ev.Kind == Failed {
				delete(d.queued, ev.Stream)
			}
			d.handle(ev)
		}
		for s, q := range d.queued {
			d.send(s, q)
		}
		d.mu.Unlock()
		d.flush()
		if err != nil {
			return err
		}
	}
}

// send sends what the windows permit.
func (d *driver) send(s *Stream, q *queue) {
	d.queued[s] = q
	out, n, err := d.m.AppendData(d.out, s, q.p, q.end && len(q.trailers) == 0)
	d.out, q.p = out, q.p[n:]
	if err == nil && len(q.p) == 0 && len(q.trailers) > 0 {
		d.out, _ = d.m.AppendTrailers(d.out, s, q.trailers)
	}
	if err != nil || len(q.p) == 0 && q.end {
		delete(d.queued, s)
	}
}

func (d *driver) flush() {
	d.writing.Lock()
	defer d.writing.Unlock()
	d.mu.Lock()
	out := append(d.m.AppendControl(nil), d.out...)
	d.out = d.out[:0]
	d.mu.Unlock()
	d.c.Write(out) //nolint:errcheck // the next read fails
}

// Our server, and the client of net/http: content of every size both ways, trailers, many requests at a time.
func TestServerAgainstNetHTTP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			d := newDriver(NewMachine(RoleServer, Options{}), c)
			content := map[*Stream][]byte{}
			d.handle = func(ev Event) { echo(d, ev, content) }
			go d.run() //nolint:errcheck // ends with the client
		}
	}()
	transport := &xhttp2.Transport{AllowHTTP: true, DialTLSContext: func(ctx context.Context, network, addr string, _ *tls.Config) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, network, addr)
	}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			body := bytes.Repeat([]byte{byte(i)}, r.IntN(4)*r.IntN(200000))
			req, _ := http.NewRequest(http.MethodPost, fmt.Sprintf("http://%s/echo?%d", l.Addr(), i), bytes.NewReader(body))
			req.Header.Set("X-Request", fmt.Sprint(i))
			resp, err := client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			if err != nil || !bytes.Equal(got, body) || resp.Header.Get("X-Request") != fmt.Sprint(i) || resp.Trailer.Get("X-Length") != fmt.Sprint(len(body)) {
				t.Errorf("request %d: %d bytes of %d, %v, %v, %v", i, len(got), len(body), resp.Header, resp.Trailer, err)
			}
		})
	}
	wg.Wait()
}

// echo answers a request with its content and fields.
func echo(d *driver, ev Event, content map[*Stream][]byte) {
	s := ev.Stream
	switch ev.Kind {
	case Data:
		content[s] = append(content[s], ev.Payload...)
		d.m.Consumed(s, len(ev.Payload))
	case End:
		msg := &semantics.Message{Status: 200, ContentLength: -1, Fields: append([]semantics.Field{{Name: "trailer", Value: "x-length"}}, s.Message.Fields...)}
		d.out, _ = d.m.AppendResponse(d.out, s, msg, false)
		d.send(s, &queue{p: content[s], end: true, trailers: []semantics.Field{{Name: "x-length", Value: fmt.Sprint(len(content[s]))}}})
		delete(content, s)
	}
}

// Our client, and the server of net/http.
func TestClientAgainstNetHTTP(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("X-Path", r.URL.Path+" "+r.Host+" "+r.Method)
		w.Header().Set(http.TrailerPrefix+"X-Length", fmt.Sprint(len(body)))
		w.WriteHeader(http.StatusEarlyHints)
		w.Write(body) //nolint:errcheck // the client notices
	}))
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	server.Config.Protocols = &protocols
	server.Start()
	defer server.Close()
	c, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	type result struct {
		header, trailers string
		hints            int
		content          []byte
		done             chan error
	}
	d := newDriver(NewMachine(RoleClient, Options{}), c)
	results := map[*Stream]*result{}
	d.handle = func(ev Event) {
		r := results[ev.Stream]
		switch ev.Kind {
		case Headers:
			if r.header = fmt.Sprint(ev.Stream.Message.Status, ev.Stream.Message.Fields); ev.Stream.Message.Status == 103 {
				r.hints++
			}
		case Data:
			r.content = append(r.content, ev.Payload...)
			d.m.Consumed(ev.Stream, len(ev.Payload))
		case Trailers:
			r.trailers = fmt.Sprint(ev.Stream.Trailers)
		case End:
			r.done <- nil
			d.m.Release(ev.Stream)
		case Failed:
			r.done <- fmt.Errorf("%s %w", ev.Code, ev.Err)
			d.m.Release(ev.Stream)
		}
	}
	go d.run() //nolint:errcheck // ends with the connection
	var wg sync.WaitGroup
	for i := range 40 {
		body := bytes.Repeat([]byte{byte(i)}, i*i*300)
		d.mu.Lock()
		s, err := d.m.Open()
		if err != nil {
			t.Fatal(err)
		}
		r := &result{done: make(chan error, 1)}
		results[s] = r
		msg := &semantics.Message{Method: "PUT", Scheme: "http", Authority: "a.example", Path: fmt.Sprintf("/%d", i), ContentLength: int64(len(body))}
		d.out, err = d.m.AppendRequest(d.out, s, msg, false)
		if err != nil {
			t.Error(err)
		}
		d.send(s, &queue{p: body, end: true})
		d.mu.Unlock()
		d.flush()
		wg.Go(func() {
			select {
			case err := <-r.done:
				if want := fmt.Sprintf("/%d a.example PUT", i); err != nil || !bytes.Equal(r.content, body) || !strings.Contains(r.header, want) || r.hints != 1 ||
					!strings.Contains(r.trailers, fmt.Sprintf("x-length %d", len(body))) {
					t.Errorf("request %d: %v, %d bytes of %d, %s, %s, %d hints", i, err, len(r.content), len(body), r.header, r.trailers, r.hints)
				}
			case <-time.After(30 * time.Second):
				t.Errorf("request %d: no response", i)
			}
		})
	}
	wg.Wait()
}
