package webpeer

import (
	"cmp"
	stdtls "crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/semantics"
	"github.com/millrace/millrace/tls"
)

// Operations of a generator.
const (
	OpGet       = "get"
	OpWebSocket = "websocket"
	OpGRPC      = "grpc"
	OpIdle      = "idle" // one request on each connection, and nothing more
)

// idleAtOnce is the number of requests of OpIdle that are open at a time, so that a proxy opens few connections to the backend.
const idleAtOnce = 4

// LoadOptions say what a generator does. All requests are alike but for the path.
type LoadOptions struct {
	To      netip.AddrPort
	TLS     bool
	Cert    []byte // DER of the certificate that the proxy must show
	HTTP2   bool
	Op      string // empty is OpGet
	Conns   int
	Streams int // of each connection of HTTP/2
	// PerConn is the number of requests on a connection before it is closed and another opened; 0 is no limit. With 1 and a Rate a
	// connection is opened when its request is due, so that the time of the request has its handshakes.
	PerConn int
	Size    int // bytes of a response
	// Coding is the content coding that HTTP/1.1 asks for: responses are text then, and must have it. Bytes counts them decoded.
	Coding string
	// Paths is the number of paths that requests have in turn, /r0 to /r(Paths-1) before the rest. 0 is none.
	Paths int
	// Rate is the number of requests that are due in a second, whether or not those before have been answered. 0 makes a new one as soon
	// as one is answered.
	Rate int
}

// Load is a generator.
type Load struct {
	o      LoadOptions
	l      *loop
	tls    *stdtls.Config
	paths  []string
	next   int               // path
	fields []semantics.Field // of a request
	first  error             // of those that Errors counts
	err    error             // ends the generator

	idle  []issuer
	late  []time.Duration // requests that are due and wait for a connection
	start time.Time
	due   time.Duration // of the next request, since start
	every time.Duration
	began bool // all connections are open, and the schedule runs
	busy  int  // requests of OpIdle

	// Requests were answered as they must, Errors were not. Connections is how many were opened.
	Requests, Bytes, Errors, Connections atomic.Uint64
	// Coded is the length of all responses as they came, where a coding is asked for.
	Coded atomic.Uint64
	// Times are from when a request is due to its end.
	Times Histogram
	// Late is the time that a request that a connection was free for has waited for the generator at most, in nanoseconds. The reader may
	// set it to 0.
	Late atomic.Int64
}

// issuer can make a request.
type issuer interface{ issue(due time.Duration) }

// NewLoad opens the connections. Requests begin with Run.
func NewLoad(o LoadOptions) (*Load, error) {
	o.Op = cmp.Or(o.Op, OpGet)
	if o.Coding != "" && (o.HTTP2 || o.Op != OpGet) {
		return nil, errors.New("a content coding is for GET with HTTP/1.1")
	}
	if o.Conns <= 0 || o.HTTP2 && o.Streams <= 0 || o.Size < 0 || o.Size > MaxContent {
		return nil, fmt.Errorf("load of %d connections, %d streams, %d bytes", o.Conns, o.Streams, o.Size)
	}
	l, err := newLoop()
	if err != nil {
		return nil, err
	}
	g := &Load{o: o, l: l, start: time.Now(), fields: requestFields}
	if o.Coding != "" {
		g.fields = append(slices.Clone(requestFields), semantics.Field{Name: "accept-encoding", Value: o.Coding})
	}
	if o.TLS {
		g.tls = clientTLS(o)
	}
	for i := range o.Paths {
		g.paths = append(g.paths, fmt.Sprintf("/r%d%s", i, BytesPath(o.Size)))
	}
	if o.Rate > 0 {
		g.every = time.Second / time.Duration(o.Rate)
	}
	for range o.Conns {
		if g.dialsWhenDue() {
			g.idle = append(g.idle, dialer{g})
		} else if err := g.dial(0); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// dialsWhenDue reports whether connections are opened for their only request.
func (g *Load) dialsWhenDue() bool { return g.every > 0 && g.o.PerConn == 1 && !g.o.HTTP2 }

// dialer makes a request by opening a connection for it.
type dialer struct{ g *Load }

func (d dialer) issue(due time.Duration) {
	if err := d.g.dial(due); err != nil {
		d.g.err = err
	}
}

// clientTLS makes handshakes alike for all proxies: what the oldest of them has. The certificate is compared, not verified,
// so that the generator has less to do than the proxy.
func clientTLS(o LoadOptions) *stdtls.Config {
	proto := "http/1.1"
	if o.HTTP2 {
		proto = "h2"
	}
	return &stdtls.Config{
		ServerName: serverName, InsecureSkipVerify: true, MinVersion: stdtls.VersionTLS13,
		CurvePreferences: []stdtls.CurveID{stdtls.X25519}, NextProtos: []string{proto},
		VerifyConnection: func(s stdtls.ConnectionState) error {
			if string(s.PeerCertificates[0].Raw) != string(o.Cert) {
				return errors.New("another certificate")
			}
			if s.NegotiatedProtocol != proto && (o.HTTP2 || s.NegotiatedProtocol != "") {
				return fmt.Errorf("protocol %q", s.NegotiatedProtocol)
			}
			return nil
		},
	}
}

// serverName is the host of all requests.
const serverName = "bench.example"

// dial opens a connection. due is when its request is, if it is opened for that.
func (g *Load) dial(due time.Duration) error {
	var engine *tls.Engine
	if g.o.TLS {
		engine = tls.NewClientEngine(g.tls, tls.EngineOptions{Coroutines: &g.l.codes})
	}
	var s interface {
		session
		bind(*conn)
	}
	if g.o.HTTP2 {
		s = newClient2(g)
	} else {
		s = newClient1(g, due)
	}
	c, err := g.l.dial(g.o.To, s, engine)
	if err != nil {
		return err
	}
	s.bind(c)
	g.Connections.Add(1)
	return nil
}

// path returns that of the next request.
func (g *Load) path() string {
	switch {
	case g.o.Op == OpWebSocket:
		return webSocketPath
	case g.o.Op == OpGRPC:
		return grpcPath
	case len(g.paths) == 0:
		g.paths = []string{BytesPath(g.o.Size)}
		if g.o.Coding != "" {
			g.paths = []string{TextPath(g.o.Size)}
		}
	}
	g.next = (g.next + 1) % len(g.paths)
	return g.paths[g.next]
}

// Run makes requests for about d.
func (g *Load) Run(d time.Duration) error {
	if g.every > 0 {
		g.schedule()
		d = min(d, g.due-time.Since(g.start))
	}
	return cmp.Or(g.err, g.l.run(d))
}

// Close ends all connections.
func (g *Load) Close() {
	for _, c := range g.l.conns {
		if c != nil {
			c.close()
		}
	}
	_ = unix.Close(g.l.epoll)
}

// schedule makes the requests that are due.
func (g *Load) schedule() {
	now := time.Since(g.start)
	if !g.began {
		g.due, g.began = now, len(g.idle) >= g.o.Conns
		if !g.began {
			g.due += time.Millisecond
			return
		}
	}
	if len(g.late) == 0 && len(g.idle) > 0 && int64(now-g.due) > g.Late.Load() {
		g.Late.Store(int64(now - g.due))
	}
	for g.due <= now {
		g.late = append(g.late, g.due)
		g.due += g.every
	}
	for len(g.late) > 0 && len(g.idle) > 0 {
		i := g.idle[0]
		g.idle = g.idle[1:]
		due := g.late[0]
		g.late = g.late[1:]
		i.issue(due)
	}
	g.l.flush()
}

// free says that i can make a request: at once, or when one is due.
func (g *Load) free(i issuer) {
	switch {
	case g.o.Op == OpIdle && g.busy < idleAtOnce:
		g.busy++
		i.issue(time.Since(g.start))
	case g.every == 0 && g.o.Op != OpIdle:
		i.issue(time.Since(g.start))
	default:
		g.idle = append(g.idle, i)
	}
}

// done counts a request that was answered.
func (g *Load) done(due time.Duration, bytes int) {
	g.Requests.Store(g.Requests.Load() + 1) // one writer
	g.Bytes.Store(g.Bytes.Load() + uint64(bytes))
	g.Times.Add(time.Since(g.start) - due)
}

// again makes i free after its request. With OpIdle another has the next one.
func (g *Load) again(i issuer) {
	if g.o.Op != OpIdle {
		g.free(i)
		return
	}
	g.busy--
	if len(g.idle) > 0 {
		i, g.idle = g.idle[0], g.idle[1:]
		g.free(i)
	}
}

// maxErrors ends a generator: nothing works.
const maxErrors = 1000

// wrong counts an error and keeps the first.
func (g *Load) wrong(err error) {
	if g.Errors.Add(1) == 1 {
		g.first = err
	}
	if g.Errors.Load() == maxErrors {
		g.err = fmt.Errorf("%d errors, the first: %w", maxErrors, g.first)
	}
}

// First returns the first error. It is not for use beside Run.
func (g *Load) First() error { return g.first }

// replace opens a connection in the place of one that has failed or was used up.
func (g *Load) replace() {
	if g.dialsWhenDue() {
		g.idle = append(g.idle, dialer{g})
		return
	}
	if err := g.dial(0); err != nil {
		g.err = err
	}
}

// ended is what the end of the input means while something is expected.
func ended(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
