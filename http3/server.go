package http3

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/millrace/quic"
)

// NextProto is the application protocol of HTTP/3 in TLS (RFC 9114 3.1).
const NextProto = "h3"

// Server serves HTTP/3. Its fields must not be changed once it serves.
type Server struct {
	// Handler serves requests; nil is http.DefaultServeMux.
	Handler http.Handler
	// TLS has the certificate. NextProtos is set to h3.
	TLS *tls.Config
	// QUIC configures connections; nil is the default. Datagrams is set where Machine needs it.
	QUIC *quic.Config
	// Machine has the limits and the extensions of connections.
	Machine MachineOptions
	// MaxHeaderBytes is Machine.MaxFieldSection where that is 0.
	MaxHeaderBytes int
	// MaxHandlers bounds the handlers of a connection that run at a time: those of requests that were
	// cancelled may still run while the client sends more. 0 is DefaultMaxHandlers.
	MaxHandlers int
	// IdleTimeout closes connections without requests; 0 leaves that to QUIC.
	IdleTimeout time.Duration
	// EarlyData reports whether a request may be served that came as early data, which an attacker can
	// repeat (RFC 8470). nil permits GET, HEAD, OPTIONS and TRACE. Others are answered with 425 Too Early.
	EarlyData func(*http.Request) bool
	// Serves reports whether the server answers for a host, without port, in lower case. A client may send requests for
	// any name of the certificate on one connection (RFC 9114 3.3); those for others are answered with 421. nil
	// answers for all.
	Serves func(host string) bool
	// Panicked, if set, is called with the panic of a handler, whose stream was reset; nil writes it to
	// standard error, as net/http does.
	Panicked func(r *http.Request, v any)
	// ConnContext, if set, changes the context of a connection's requests.
	ConnContext func(ctx context.Context, c *quic.Conn) context.Context

	mu        sync.Mutex
	closed    bool
	listeners map[*quic.Listener]struct{}
	conns     map[*serverConn]struct{}
	owned     []*quic.Transport
	empty     chan struct{}
}

// DefaultMaxHandlers is the default of Server.MaxHandlers.
const DefaultMaxHandlers = 250

// ErrServerClosed is returned by the Serve methods after Close and Shutdown.
var ErrServerClosed = http.ErrServerClosed

// ListenAndServe serves on a UDP address, such as ":443". cert and key name files; empty names leave the
// certificate to TLS.
func (s *Server) ListenAndServe(addr, cert, key string) error {
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("http3: %w", err)
		}
		s.TLS = s.tlsConfig()
		s.TLS.Certificates = []tls.Certificate{pair}
	}
	if addr == "" {
		addr = ":443"
	}
	pc, err := net.ListenPacket("udp", addr)
	if err != nil {
		return fmt.Errorf("http3: %w", err)
	}
	return s.Serve(pc)
}

// Serve serves on a packet conn, which it takes.
func (s *Server) Serve(pc net.PacketConn) error {
	t, err := quic.NewTransport(pc, quic.TransportConfig{})
	if err != nil {
		_ = pc.Close()
		return err
	}
	s.mu.Lock()
	s.owned = append(s.owned, t)
	s.mu.Unlock()
	return s.ServeTransport(t)
}

// ServeTransport serves on a transport of QUIC, which stays the caller's.
func (s *Server) ServeTransport(t *quic.Transport) error {
	l, err := t.Listen(s.tlsConfig(), s.quicConfig())
	if err != nil {
		return err
	}
	return s.ServeListener(l)
}

// ServeListener serves the connections of a listener until Close or Shutdown, which close it.
func (s *Server) ServeListener(l *quic.Listener) error {
	if !s.track(l) {
		_ = l.Close()
		return ErrServerClosed
	}
	for {
		q, err := l.Accept(context.Background())
		if err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.listeners, l)
			if s.closed {
				return ErrServerClosed
			}
			return err
		}
		go func() { _ = s.ServeConn(q) }()
	}
}

func (s *Server) track(l *quic.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listeners == nil {
		s.listeners = map[*quic.Listener]struct{}{}
	}
	s.listeners[l] = struct{}{}
	return !s.closed
}

// tlsConfig returns a copy of TLS with the protocol.
func (s *Server) tlsConfig() *tls.Config {
	c := &tls.Config{}
	if s.TLS != nil {
		_, _ = s.TLS.DecryptTicket(nil, tls.ConnectionState{}) // makes the keys that all copies share
		c = s.TLS.Clone()
	}
	c.NextProtos = []string{NextProto}
	if s.QUIC != nil && s.QUIC.ZeroRTT {
		return earlySettings(c, s.machineOptions().settings(RoleServer))
	}
	return c
}

func (s *Server) quicConfig() *quic.Config {
	var c quic.Config
	if s.QUIC != nil {
		c = *s.QUIC
	}
	o := s.machineOptions()
	c.Datagrams = c.Datagrams || o.Datagrams
	c.ResetAt = c.ResetAt || o.WebTransport > 0
	if c.IdleTimeout == 0 {
		c.IdleTimeout = s.IdleTimeout
	}
	return &c
}

func (s *Server) machineOptions() MachineOptions {
	o := s.Machine
	if o.MaxFieldSection == 0 {
		o.MaxFieldSection = s.MaxHeaderBytes
	}
	return o.withDefaults()
}

// AltSvc returns the value of the header Alt-Svc by which a server of HTTP/1.1 or HTTP/2 refers clients to
// this one on a UDP port (RFC 7838 3).
func AltSvc(port int, maxAge time.Duration) string {
	return fmt.Sprintf(`%s=":%d"; ma=%d`, NextProto, port, int(maxAge/time.Second))
}

// AltSvcHandler adds the header Alt-Svc to the responses of h.
func AltSvcHandler(h http.Handler, port int, maxAge time.Duration) http.Handler {
	value := AltSvc(port, maxAge)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Alt-Svc", value)
		h.ServeHTTP(w, r)
	})
}

// Shutdown has every connection take no more requests (GOAWAY), waits until those under way are answered or
// ctx ends, and closes.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop()
	s.mu.Lock()
	s.empty = make(chan struct{})
	empty := s.empty
	for c := range s.conns {
		go c.drain()
	}
	if len(s.conns) == 0 {
		close(s.empty)
		s.empty = nil
	}
	s.mu.Unlock()
	var err error
	select {
	case <-empty:
	case <-ctx.Done():
		err = ctx.Err()
	}
	return errors.Join(err, s.Close())
}

// stop closes the listeners.
func (s *Server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for l := range s.listeners {
		_ = l.Close()
	}
}

// Close closes all connections at once.
func (s *Server) Close() error {
	s.stop()
	s.mu.Lock()
	conns, owned := s.conns, s.owned
	s.owned = nil
	list := make([]*serverConn, 0, len(conns))
	for c := range conns {
		list = append(list, c)
	}
	s.mu.Unlock()
	for _, c := range list {
		_ = c.q.CloseWithError(uint64(NoError), "")
	}
	for _, t := range owned {
		_ = t.Close()
	}
	return nil
}

func (s *Server) add(c *serverConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.conns == nil {
		s.conns = map[*serverConn]struct{}{}
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *Server) remove(c *serverConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if len(s.conns) == 0 && s.empty != nil {
		close(s.empty)
		s.empty = nil
	}
}

func (s *Server) handler() http.Handler {
	if s.Handler != nil {
		return s.Handler
	}
	return http.DefaultServeMux
}

// date is the header Date, made once a second.
var date struct {
	sync.Mutex
	second int64
	text   string
}

func dateHeader() string {
	now := time.Now()
	date.Lock()
	defer date.Unlock()
	if s := now.Unix(); s != date.second {
		date.second, date.text = s, now.UTC().Format(http.TimeFormat)
	}
	return date.text
}

// statusText returns a status as the value of :status.
func statusText(status int) string {
	if status == http.StatusOK {
		return "200"
	}
	return strconv.Itoa(status)
}
