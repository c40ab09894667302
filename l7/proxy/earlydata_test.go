package proxy

import (
	"context"
	ctls "crypto/tls"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/semantics"
)

// wiretap forwards datagrams between a client and a server of the kernel's stack, and keeps those of the client: an attacker on the
// path has all of them.
type wiretap struct {
	front, back *net.UDPConn

	mu       sync.Mutex
	holding  bool
	held     int // of recorded, how many have not been forwarded
	recorded [][]byte
	client   net.Addr
	silent   bool     // the server's datagrams are kept
	kept     [][]byte // those
}

func newWiretap(t *testing.T, server string) *wiretap {
	to, err := net.ResolveUDPAddr("udp4", server)
	must(t, err)
	w := &wiretap{}
	w.front, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(t, err)
	w.back, err = net.DialUDP("udp4", nil, to)
	must(t, err)
	t.Cleanup(func() { _, _ = w.front.Close(), w.back.Close() })
	go w.toServer()
	go w.toClient()
	return w
}

func (w *wiretap) toServer() {
	for buf := make([]byte, 65536); ; {
		n, from, err := w.front.ReadFrom(buf)
		if err != nil {
			return
		}
		w.mu.Lock()
		w.client = from
		if w.recorded = append(w.recorded, slices.Clone(buf[:n])); w.holding {
			w.held++
		} else {
			_, _ = w.back.Write(buf[:n])
		}
		w.mu.Unlock()
	}
}

func (w *wiretap) toClient() {
	for buf := make([]byte, 65536); ; {
		n, err := w.back.Read(buf)
		if err != nil {
			return
		}
		w.mu.Lock()
		if w.silent {
			w.kept = append(w.kept, slices.Clone(buf[:n]))
		} else {
			_, _ = w.front.WriteTo(buf[:n], w.client)
		}
		w.mu.Unlock()
	}
}

// hold keeps what the client sends until forward.
func (w *wiretap) hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holding, w.recorded = true, nil
}

// forward sends what is held, and holds what follows if on: the server then has the first flight and no end of the handshake.
func (w *wiretap) forward(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.recorded[len(w.recorded)-w.held:] {
		_, _ = w.back.Write(b)
	}
	w.holding, w.held = on, 0
}

// silence keeps what the server sends, and with on false sends that: until then no handshake that begins is completed.
func (w *wiretap) silence(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.kept {
		_, _ = w.front.WriteTo(b, w.client)
	}
	w.silent, w.kept = on, nil
}

func (w *wiretap) flight() [][]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.recorded)
}

// earlyClient sends requests of HTTP/3 at times of its own choice, also before the handshake is complete.
type earlyClient struct {
	t *testing.T
	q *quic.Conn
	m *http3.Machine
}

// dialEarly resumes a session of the cache, if it has one.
func dialEarly(t *testing.T, r *rig, address string, cache ctls.ClientSessionCache) *earlyClient {
	addr, err := net.ResolveUDPAddr("udp4", address)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tc := &ctls.Config{RootCAs: r.roots, ServerName: "gateway.test", NextProtos: []string{http3.NextProto}, ClientSessionCache: cache}
	q, err := quicSocket(t).Dial(ctx, addr, tc, &quic.Config{ZeroRTT: true})
	must(t, err)
	return &earlyClient{t: t, q: q, m: http3.NewMachine(http3.RoleClient, http3.MachineOptions{})}
}

// ask sends a request, and returns a function that waits for the response.
func (c *earlyClient) ask(method, path string, fields ...semantics.Field) func() (status int, body string) {
	c.t.Helper()
	s, err := c.q.TryOpenStream()
	must(c.t, err)
	m := semantics.Message{Method: method, Scheme: "https", Authority: "gateway.test", Path: path, ContentLength: -1, Fields: fields}
	st, err := c.m.Open(uint64(s.ID()))
	must(c.t, err)
	_, err = s.Write(c.m.AppendRequest(nil, uint64(s.ID()), &m))
	must(c.t, err)
	must(c.t, s.Close())
	return func() (int, string) {
		c.t.Helper()
		must(c.t, s.SetReadDeadline(time.Now().Add(patience)))
		b, err := io.ReadAll(s)
		must(c.t, err)
		var body strings.Builder
		for len(b) > 0 {
			ev, n, err := c.m.Input(st, b, true)
			must(c.t, err)
			body.Write(ev.Payload)
			b = b[n:]
		}
		return st.Message.Status, body.String()
	}
}

func (c *earlyClient) close() { _ = c.q.CloseWithError(uint64(http3.NoError), "") }

// ticket has the cache hold a session of the gateway.
func (r *rig) ticket(cache ctls.ClientSessionCache) {
	r.t.Helper()
	c := dialEarly(r.t, r, r.secure, cache)
	defer c.close()
	if status, _ := c.ask("GET", "/ticket")(); status != 200 {
		r.t.Fatal(status)
	}
	r.eventually("a session", func() bool { cs, ok := cache.Get("gateway.test"); return ok && cs != nil })
}

// methods counts the requests that a backend has executed, by method.
type methods struct {
	mu sync.Mutex
	n  map[string]int
}

func (m *methods) count(method string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.n[method]
}

// serve answers with what the request says of early data.
func (m *methods) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/ticket" {
		m.mu.Lock()
		m.n[r.Method]++
		m.mu.Unlock()
	}
	_, _ = io.WriteString(w, strings.Join(r.Header["Early-Data"], ","))
}

// earlyRig is a gateway that takes early data, with ticket keys that others have too.
func earlyRig(t *testing.T, executed *methods) *rig {
	backend := served(t, executed.serve)
	return http3Rig(t, strings.TrimPrefix(backend.URL, "http://"), func(r *rig) {
		ln := r.tree.Listeners[1]
		ln.HTTP3.QUIC = &quic.Config{ZeroRTT: true}
		ln.TLS.SetSessionTicketKeys([][32]byte{{1}})
	})
}

// strikes returns the counters of the gateway's register of early data.
func (r *rig) strikes() quic.StrikeStats {
	r.endpoints.mu.Lock()
	defer r.endpoints.mu.Unlock()
	return r.endpoints.open[r.tree.Listeners[1].Address].l.Replay().Stats()
}

// replay sends a flight again, from another address.
func (r *rig) replay(flight [][]byte) {
	r.t.Helper()
	c, err := net.Dial("udp4", r.secure)
	must(r.t, err)
	defer c.Close()
	for _, b := range flight {
		_, err := c.Write(b)
		must(r.t, err)
	}
}

// The first flight of a client, sent again to the gateway or to another with the same ticket keys, has no request executed a second
// time (RFC 8446 8, RFC 8470 3). An unsafe request is not executed out of it even the first time.
func TestReplayedFlightsExecuteNothing(t *testing.T) {
	executed := &methods{n: map[string]int{}}
	first, second := earlyRig(t, executed), earlyRig(t, executed)
	cache := ctls.NewLRUClientSessionCache(1)
	first.ticket(cache)
	tap := newWiretap(t, first.secure)
	tap.hold()
	c := dialEarly(t, first, tap.front.LocalAddr().String(), cache)
	post, get := c.ask("POST", "/order"), c.ask("GET", "/list", semantics.Field{Name: "early-data", Value: "0"})
	var flight [][]byte
	first.eventually("the whole flight", func() bool { // QUIC sends it again while nothing answers
		last := len(flight)
		flight = tap.flight()
		return last > 1 && last == len(flight)
	})
	tap.forward(true)
	if status, _ := post(); status != 425 {
		t.Errorf("an early POST: %d, want 425", status)
	}
	if status, early := get(); status != 200 || early != "1" {
		t.Errorf("an early GET: %d, Early-Data %q, want 200 and 1", status, early)
	}
	tap.forward(false)
	if !c.q.State().Used0RTT {
		t.Fatal("the gateway took no early data")
	}
	status, early := c.ask("POST", "/order")()
	for end := time.Now().Add(patience); status == 425 && time.Now().Before(end); { // the gateway has not seen the end of the handshake
		status, early = c.ask("POST", "/order")()
	}
	if status != 200 || early != "" {
		t.Errorf("the POST after the handshake: %d, Early-Data %q", status, early)
	}
	c.close()
	first.eventually("no connection", first.worker.Idle)

	first.eventually("the gateway refuses the replay", func() bool { first.replay(flight); return first.strikes().Replayed > 0 })
	second.eventually("another gateway refuses it", func() bool { second.replay(flight); return second.strikes().Foreign > 0 })
	for _, r := range []*rig{first, second} { // what a replay brings is handled before the request of a later connection
		r.ticket(ctls.NewLRUClientSessionCache(1))
	}
	if p, g := executed.count("POST"), executed.count("GET"); p != 1 || g != 1 {
		t.Errorf("%d POST and %d GET were executed, want 1 and 1", p, g)
	}
}

// A reload permits early data, and ends that, without the loss of a connection.
func TestEarlyDataFollowsTheConfiguration(t *testing.T) {
	r := earlyRig(t, &methods{n: map[string]int{}})
	used := func(cache ctls.ClientSessionCache) bool {
		t.Helper()
		c := dialEarly(t, r, r.secure, cache)
		defer c.close()
		<-c.q.HandshakeComplete()
		return c.q.State().Used0RTT
	}
	ask := func(want bool) {
		t.Helper()
		cache := ctls.NewLRUClientSessionCache(1)
		r.ticket(cache)
		if got := used(cache); got != want {
			t.Errorf("early data used: %v, want %v", got, want)
		}
	}
	reload := func(early bool) {
		t.Helper()
		ln := *r.tree.Listeners[1]
		h := *ln.HTTP3
		h.QUIC, ln.HTTP3 = &quic.Config{ZeroRTT: early}, &h
		r.tree = &Tree{Listeners: []*Listener{r.tree.Listeners[0], &ln}, Pools: r.tree.Pools}
		must(t, r.apply(r.tree))
	}
	ask(true)
	stays, before := dialEarly(t, r, r.secure, nil), ctls.NewLRUClientSessionCache(1)
	r.ticket(before)
	reload(false)
	if ask(false); used(before) {
		t.Error("early data was used on a ticket from before the reload")
	}
	reload(true)
	ask(true)
	if status, _ := stays.ask("GET", "/")(); status != 200 {
		t.Errorf("a connection from before: %d", status)
	}
	stays.close()
	r.settled()
}

// After a reload that ends early data, what is still under way of it is answered with 425.
func TestEarlyRequestsOfAListenerWithoutEarlyData(t *testing.T) {
	executed := &methods{n: map[string]int{}}
	r := earlyRig(t, executed)
	cache := ctls.NewLRUClientSessionCache(1)
	r.ticket(cache)
	tap := newWiretap(t, r.secure)
	tap.hold()
	c := dialEarly(t, r, tap.front.LocalAddr().String(), cache)
	get := c.ask("GET", "/")
	r.do(func() { // the QUIC listener still takes it
		for _, l := range r.worker.listeners {
			if l.current.HTTP3 != nil {
				ln := *l.current
				h := *ln.HTTP3
				h.QUIC, ln.HTTP3 = nil, &h
				l.current = &ln
			}
		}
	})
	tap.silence(true) // however many packets the flight has, the handshake is not complete before the answer
	tap.forward(false)
	r.eventually("the answer", func() bool { return r.worker.Stats().Status[4] > 0 })
	tap.silence(false)
	if status, _ := get(); status != 425 {
		t.Errorf("status %d, want 425", status)
	}
	if n := executed.count("GET"); n != 0 {
		t.Errorf("%d requests were executed", n)
	}
	c.close()
	r.settled()
}

// The answer 425 of a backend is for the client of an early request, whatever the rule says of such answers (RFC 8470 5.2): the gateway
// could only send the request again as early as before.
func TestTooEarlyOfABackendIsForTheClient(t *testing.T) {
	executed := &methods{n: map[string]int{}}
	backend := served(t, func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Early-Data") != "" {
			w.WriteHeader(http.StatusTooEarly)
		}
		executed.serve(w, req)
	})
	r := http3Rig(t, strings.TrimPrefix(backend.URL, "http://"), func(r *rig) {
		ln := r.tree.Listeners[1]
		ln.HTTP3.QUIC = &quic.Config{ZeroRTT: true}
		r.rule.Attempts, r.rule.RetryStatus = 3, []int{425}
	})
	cache := ctls.NewLRUClientSessionCache(1)
	r.ticket(cache)
	tap := newWiretap(t, r.secure)
	tap.silence(true)
	c := dialEarly(t, r, tap.front.LocalAddr().String(), cache)
	get := c.ask("GET", "/")
	r.eventually("the answer", func() bool { return r.worker.Stats().Status[4] > 0 })
	tap.silence(false)
	if status, _ := get(); status != 425 || executed.count("GET") != 1 {
		t.Errorf("an early GET: %d after %d requests to the backend, want 425 after one", status, executed.count("GET"))
	}
	c.close()
	if status := r.ask("GET", "/", "Early-Data", "1"); status != 425 || executed.count("GET") != 2 {
		t.Errorf("a GET that says so: %d after %d requests to the backend", status, executed.count("GET"))
	}
	r.settled()
}
