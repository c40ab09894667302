package webpeer

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/internal/testkit/testport"
)

// startBackend serves until the test ends.
func startBackend(t *testing.T) (*Backend, netip.AddrPort) {
	at := testport.Hold(t)
	b, err := NewBackend(at)
	if err != nil {
		t.Fatal(err)
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
				if err := b.Run(5 * time.Millisecond); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-ended })
	return b, at
}

// drive runs a generator until it has made n requests.
func drive(t *testing.T, o LoadOptions, n uint64) *Load {
	t.Helper()
	g, err := NewLoad(o)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); g.Requests.Load() < n && g.Errors.Load() == 0; {
		if err := g.Run(5 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(end) {
			t.Fatalf("%d requests in 30 s", g.Requests.Load())
		}
	}
	return g
}

func TestEveryOperationReachesTheBackend(t *testing.T) {
	for name, o := range map[string]LoadOptions{
		"keep-alive":       {Conns: 4, Size: 128},
		"large":            {Conns: 2, Size: MaxContent},
		"one request each": {Conns: 4, Size: 128, PerConn: 1},
		"one large each":   {Conns: 4, Size: MaxContent, PerConn: 1},
		"three each":       {Conns: 4, Size: 128, PerConn: 3},
		"HTTP/2":           {Conns: 2, Streams: 8, Size: 128, HTTP2: true},
		"HTTP/2, larger":   {Conns: 1, Streams: 2, Size: MaxContent, HTTP2: true},
		"WebSocket":        {Conns: 4, Op: OpWebSocket},
		"gRPC":             {Conns: 2, Streams: 8, Op: OpGRPC, HTTP2: true},
		"on schedule":      {Conns: 4, Size: 128, Rate: 2000},
		"dialled when due": {Conns: 4, Size: 128, Rate: 2000, PerConn: 1},
		"paths":            {Conns: 1, Size: 128, Paths: 7},
	} {
		t.Run(name, func(t *testing.T) {
			b, at := startBackend(t)
			o.To = at
			begin := time.Now()
			g := drive(t, o, 100)
			if o.Rate > 0 && time.Now().Before(begin.Add(90*time.Second/time.Duration(o.Rate))) {
				t.Errorf("100 requests took less time than their rate of %d a second allows", o.Rate)
			}
			if g.Errors.Load() > 0 {
				t.Fatal(g.First())
			}
			served := b.Requests.Load() + b.Messages.Load()
			if r := g.Requests.Load(); served < r || served > r+uint64(o.Conns*max(o.Streams, 1)) {
				t.Errorf("%d requests answered, %d served", r, served)
			}
			if o.PerConn > 0 && g.Connections.Load() < 100/uint64(o.PerConn) {
				t.Errorf("%d connections", g.Connections.Load())
			}
			if want := g.Requests.Load() * uint64(o.Size); o.Op == "" && g.Bytes.Load() != want {
				t.Errorf("%d bytes, want %d", g.Bytes.Load(), want)
			}
		})
	}
}

func TestIdleConnectionsMakeOneRequestEach(t *testing.T) {
	b, at := startBackend(t)
	g := drive(t, LoadOptions{To: at, Conns: 100, Size: 128, Op: OpIdle}, 100)
	for range 20 {
		if err := g.Run(time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	if g.Errors.Load() > 0 || g.Requests.Load() != 100 || b.Requests.Load() != 100 || b.Connections.Load() != 100 {
		t.Errorf("%d requests, %d served on %d connections, first error %v", g.Requests.Load(), b.Requests.Load(), b.Connections.Load(), g.First())
	}
}

// Paths come in turn, and of idle connections few make their request at a time.
func TestWhatANetHTTPServerSees(t *testing.T) {
	var busy, most atomic.Int32
	var paths sync.Map
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := busy.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(time.Millisecond)
		paths.Store(r.URL.Path, nil)
		answerContent(w, r)
		busy.Add(-1)
	})
	o := LoadOptions{Conns: 40, Size: 128, TLS: true, Op: OpIdle, Paths: 7}
	o.To, o.Cert = tlsServer(t, false, h)
	if g := drive(t, o, 40); g.Errors.Load() > 0 {
		t.Fatal(g.First())
	}
	if n := most.Load(); n > idleAtOnce {
		t.Errorf("%d requests at a time", n)
	}
	seen := 0
	paths.Range(func(any, any) bool { seen++; return true })
	if seen != 7 {
		t.Errorf("%d paths, want 7", seen)
	}
}

// tlsServer is a server of net/http: a foreign peer of the generator. It returns its certificate.
func tlsServer(t *testing.T, h2 bool, h http.Handler) (netip.AddrPort, []byte) {
	cert, _ := testcert.SelfSigned("bench.example")
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of connections that generators leave behind
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	s.EnableHTTP2 = h2
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Listener.Addr().(*net.TCPAddr).AddrPort(), cert.Certificate[0]
}

func answerContent(w http.ResponseWriter, r *http.Request) {
	n, _ := sizeOf(r.URL.Path, bytesPath)
	_, _ = w.Write(content[:n])
}

func TestNetHTTPServesTheGeneratorOverTLS(t *testing.T) {
	for name, o := range map[string]LoadOptions{
		"keep-alive":     {Conns: 4, Size: 128},
		"handshakes":     {Conns: 4, Size: 128, PerConn: 1},
		"due handshakes": {Conns: 4, Size: 128, PerConn: 1, Rate: 500},
		"large":          {Conns: 2, Size: MaxContent},
		"HTTP/2":         {Conns: 2, Streams: 8, Size: 128, HTTP2: true},
		"HTTP/2, larger": {Conns: 1, Streams: 4, Size: MaxContent, HTTP2: true},
	} {
		t.Run(name, func(t *testing.T) {
			o.TLS = true
			o.To, o.Cert = tlsServer(t, o.HTTP2, http.HandlerFunc(answerContent))
			n := uint64(40)
			if o.HTTP2 && o.Size == MaxContent {
				n = connWindow/MaxContent + 10 // windows are opened again
			}
			if g := drive(t, o, n); g.Errors.Load() > 0 {
				t.Fatal(g.First())
			}
		})
	}
}

func TestWrongAnswersAreErrors(t *testing.T) {
	for want, h := range map[string]http.HandlerFunc{
		"status 404":                  http.NotFound,
		"wrong content":               func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 128)) },
		"ends after 127 bytes":        func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content[:127]) },
		"a response of more than 128": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content[:129]) },
		"unexpected EOF":              func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		for _, h2 := range []bool{false, true} {
			if h2 && want == "unexpected EOF" {
				want = "stream reset"
			}
			o := LoadOptions{Conns: 1, Streams: 1, Size: 128, TLS: true, HTTP2: h2}
			o.To, o.Cert = tlsServer(t, h2, h)
			g := drive(t, o, 1)
			if g.Errors.Load() == 0 || !strings.Contains(g.First().Error(), want) {
				t.Errorf("HTTP/2 %v: error %v, want %q", h2, g.First(), want)
			}
		}
	}
	o := LoadOptions{Conns: 1, Size: 128, TLS: true, Cert: []byte("another")}
	o.To, _ = tlsServer(t, false, http.HandlerFunc(answerContent))
	if g := drive(t, o, 1); g.Errors.Load() == 0 || !strings.Contains(g.First().Error(), "another certificate") {
		t.Errorf("error %v, want one of the certificate", g.First())
	}
}

func TestNetHTTPIsAnsweredByTheBackend(t *testing.T) {
	_, at := startBackend(t)
	for _, h2 := range []bool{false, true} {
		tr := &http.Transport{Protocols: new(http.Protocols)}
		tr.Protocols.SetHTTP1(!h2)
		tr.Protocols.SetUnencryptedHTTP2(h2)
		tr.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10} // less than the largest response
		c := http.Client{Transport: tr}
		for _, size := range []int{0, 128, 4097, MaxContent} {
			resp, err := c.Get("http://" + at.String() + "/any" + BytesPath(size))
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || string(got) != string(content[:size]) || resp.ProtoMajor == 2 != h2 {
				t.Errorf("%s: %d bytes of %d, error %v", resp.Proto, len(got), size, err)
			}
		}
		tr.CloseIdleConnections()
	}
}

func TestQuantilesOfAHistogram(t *testing.T) {
	var h Histogram
	h.Add(time.Hour)
	before := h.Counts()
	for i := range 1000 {
		h.Add(time.Duration(i+1) * time.Microsecond)
	}
	after := h.Counts()
	for q, want := range map[float64]time.Duration{0: time.Microsecond, 0.5: 500 * time.Microsecond, 0.99: 990 * time.Microsecond, 1: time.Millisecond} {
		got := Quantile(before, after, q)
		if got < want || got > want+want/32+1 {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if q := Quantile(after, after, 0.5); q != 0 {
		t.Errorf("quantile of nothing is %v", q)
	}
	for _, ns := range []uint64{0, 1, 63, 64, 65, 1000, 1 << 40} {
		if up := uint64(upperEnd(bucketOf(ns))); up < ns || up > ns+ns/32 {
			t.Errorf("the bucket of %d ends at %d", ns, up)
		}
	}
}

// A server that stops for a while makes all requests late that were due meanwhile, not only those that it held.
func TestALateRequestCountsFromWhenItWasDue(t *testing.T) {
	var n int
	o := LoadOptions{Conns: 1, Size: 128, TLS: true, Rate: 1000}
	o.To, o.Cert = tlsServer(t, false, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n++; n == 10 {
			time.Sleep(200 * time.Millisecond)
		}
		answerContent(w, r)
	}))
	g := drive(t, o, 150)
	if g.Errors.Load() > 0 {
		t.Fatal(g.First())
	}
	if q := Quantile(make([]uint64, len(g.Times.Counts())), g.Times.Counts(), 0.5); q < 50*time.Millisecond {
		t.Errorf("the median is %v although a stop of 200 ms met nearly all of 150 requests", q)
	}
}

// The time of a request whose connection is opened when it is due has the handshake: a server that takes 20 ms for one shows.
func TestARequestThatDialsCountsItsHandshake(t *testing.T) {
	o := LoadOptions{Conns: 4, Size: 128, TLS: true, Rate: 50, PerConn: 1}
	o.To, o.Cert = tlsServer(t, false, http.HandlerFunc(answerContent))
	o.To = slowly(t, o.To, 20*time.Millisecond)
	g := drive(t, o, 20)
	if g.Errors.Load() > 0 {
		t.Fatal(g.First())
	}
	if least := Quantile(make([]uint64, len(g.Times.Counts())), g.Times.Counts(), 0.01); least < 20*time.Millisecond {
		t.Errorf("one took %v", least)
	}
}

// slowly passes connections on to a server, each after a while.
func slowly(t *testing.T, to netip.AddrPort, after time.Duration) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				time.Sleep(after)
				s, err := net.Dial("tcp", to.String())
				if err != nil {
					return
				}
				defer s.Close()
				go func() { _, _ = io.Copy(s, c) }()
				_, _ = io.Copy(c, s)
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// A pause in one slice of five decides the quantile of the whole and not the median of the slices.
func TestSlicesPassOverAPause(t *testing.T) {
	var h Histogram
	s := Slices{Of: &h, Every: 100 * time.Millisecond}
	now := time.Now()
	s.Look(now)
	before := h.Counts()
	for i := range 5 {
		for range 1000 {
			h.Add(time.Microsecond * 100)
		}
		if i == 2 {
			for range 200 {
				h.Add(20 * time.Millisecond)
			}
		}
		s.Look(now.Add(time.Duration(i)*s.Every + s.Every/2)) // the slice is not over
		s.Look(now.Add(time.Duration(i+1) * s.Every))
	}
	p99, p999 := s.Medians()
	if all := Quantile(before, h.Counts(), 0.99); all < 20*time.Millisecond || p99 > 110*time.Microsecond || p999 > 110*time.Microsecond {
		t.Errorf("p99 %v, of slices %v and %v", all, p99, p999)
	}
	if again, _ := s.Medians(); again != 0 {
		t.Errorf("%v without a new slice", again)
	}
}

// A generator that asks for a coding finds content that is not what it must be, in any coding.
func TestCodedContentIsCompared(t *testing.T) {
	coded := func(content []byte) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write(content)
		_ = w.Close()
		return b.Bytes()
	}
	right := coded(text[:1000])
	if err := checkText("gzip", 1000, right); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"another byte": checkText("gzip", 1000, coded(append([]byte("x"), text[1:1000]...))),
		"too short":    checkText("gzip", 1001, right),
		"too long":     checkText("gzip", 999, right),
		"cut":          checkText("gzip", 1000, right[:len(right)-9]),
		"not coded":    checkText("zstd", 1000, right),
		"unknown":      checkText("deflate", 1000, right),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
