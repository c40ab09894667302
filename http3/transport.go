package http3

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"

	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/semantics"
)

// Transport is an http.RoundTripper over HTTP/3. It keeps one connection for each server, over which
// requests run side by side. The zero value is valid. Its fields must not be changed once it is used.
type Transport struct {
	// TLS is cloned for each connection; nil is the default. NextProtos is set to h3, and ServerName where
	// it is empty.
	TLS *tls.Config
	// QUIC configures connections; nil is the default. With ZeroRTT, and a session cache in TLS, requests with
	// safe methods are sent as early data.
	QUIC *quic.Config
	// Machine has the limits and the extensions of connections.
	Machine MachineOptions
	// Dial opens a connection to a host and port; nil resolves the name and dials from one UDP socket for
	// all. The connection is the transport's.
	Dial func(ctx context.Context, addr string, tc *tls.Config, qc *quic.Config) (*quic.Conn, error)
	// Lookup resolves names, for dialing without Dial and for ShareConnections; nil is net.DefaultResolver.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	// ShareConnections has requests use a connection to another server, if their name resolves to its address and its
	// certificate is valid for them (RFC 9114 3.3). A request that is answered with 421 goes to a connection of its
	// own. Without it each server has its own.
	ShareConnections bool
	// DisableCompression has no gzip asked for, and none undone, where a request has no Accept-Encoding.
	DisableCompression bool
	// Push, if set, is called for each push of a server, which Machine.MaxPushes permits. It must not block.
	Push func(*Push)

	mu       sync.Mutex
	conns    map[destination]*dialed
	unshared map[destination]struct{} // those that have answered 421 on a shared connection
	quic     *quic.Transport
	closed   bool
}

// destination is where a connection goes, and the name that its certificate was checked for.
type destination struct {
	addr, name string
}

// dialed is a connection, or one that is being opened.
type dialed struct {
	done   chan struct{} // closed when c or err is set
	c      *clientConn
	err    error
	shared bool // it was opened for another destination
}

// ErrTransportClosed is returned after Transport.Close.
var ErrTransportClosed = fmt.Errorf("http3: transport closed: %w", net.ErrClosed)

// RoundTrip sends a request and returns its response. The body of the request is closed, also on errors.
// Errors of the connection are *ConnError, and those of the one request *StreamError.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	return t.roundTrip(req, hostPort(req))
}

// hostPort returns where a request goes.
func hostPort(req *http.Request) string {
	if req.URL == nil {
		return ""
	}
	host, port := req.URL.Hostname(), req.URL.Port()
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(host, port)
}

// roundTrip sends a request to an address, which may be an alternative of its own.
func (t *Transport) roundTrip(req *http.Request, addr string) (*http.Response, error) {
	if err := checkRequest(req); err != nil {
		closeBody(req)
		return nil, err
	}
	to := destination{addr, req.URL.Hostname()}
	for attempt := 0; ; attempt++ {
		resp, err := t.try(req, to, attempt)
		if err == nil {
			if !canRewind(req) || !t.misdirected(to, resp) {
				return resp, nil
			}
			_ = resp.Body.Close()
			err = errMisdirected
		}
		if attempt == 2 || req.Context().Err() != nil || !repeatable(req, err) {
			return nil, err
		}
		if req.Body != nil && req.Body != http.NoBody {
			body, bodyErr := req.GetBody()
			if bodyErr != nil {
				return nil, err
			}
			again := *req
			again.Body = body
			req = &again
		}
	}
}

// try sends a request once. After a first failure it uses no early data.
func (t *Transport) try(req *http.Request, to destination, attempt int) (*http.Response, error) {
	c, err := t.conn(req, to, attempt > 0)
	if err != nil {
		closeBody(req)
		return nil, err
	}
	resp, err := c.roundTrip(req)
	if err == nil {
		return resp, nil
	}
	var se *StreamError
	if !errors.As(err, &se) && (c.ctx.Err() != nil || errors.Is(err, ErrGoingAway) || errors.Is(err, quic.Err0RTTRejected)) {
		t.forget(to, c)
	}
	return nil, err
}

// repeatable reports whether a request may be sent again: the server has refused it, or taken no notice, or
// it does the same twice (RFC 9114 4.1.1, RFC 9110 9.2.2).
func repeatable(req *http.Request, err error) bool {
	if !canRewind(req) {
		return false
	}
	if err == errMisdirected { //nolint:errorlint // it is never wrapped
		return true
	}
	var se *StreamError
	if errors.As(err, &se) {
		return se.Remote && se.Code == RequestRejected
	}
	if errors.Is(err, ErrGoingAway) || errors.Is(err, quic.Err0RTTRejected) {
		return true
	}
	var ce *ConnError
	if errors.As(err, &ce) && ce.Code != NoError || !errors.Is(err, net.ErrClosed) && ce == nil {
		return false
	}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// errMisdirected reports that the server does not answer for the request on this connection.
var errMisdirected = errors.New("http3: the server answered 421 Misdirected Request")

// canRewind reports whether the body of a request can be sent again.
func canRewind(req *http.Request) bool {
	return req.Body == nil || req.Body == http.NoBody || req.GetBody != nil
}

// checkRequest finds mistakes before a connection is opened.
func checkRequest(req *http.Request) error {
	switch {
	case req.URL == nil || req.URL.Host == "":
		return errors.New("http3: the request has no host")
	case req.URL.Scheme != "https":
		return fmt.Errorf("http3: the scheme is %q, want https", req.URL.Scheme)
	case !semantics.IsAuthority(req.URL.Host):
		return fmt.Errorf("http3: the host %q is not in its ASCII form", req.URL.Host)
	case req.Method != "" && !semantics.IsToken(req.Method):
		return fmt.Errorf("http3: the method %q is no token", req.Method)
	}
	for name, values := range req.Header {
		pseudo := name == ":protocol" && req.Method == http.MethodConnect
		if !pseudo && !semantics.IsToken(name) {
			return fmt.Errorf("http3: invalid header name %q", name)
		}
		for _, v := range values {
			if !semantics.IsText(v) {
				return fmt.Errorf("http3: invalid value of the header %q", name)
			}
		}
	}
	return nil
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// conn returns the connection to an address that takes requests, opening one if there is none.
func (t *Transport) conn(req *http.Request, to destination, again bool) (*clientConn, error) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil, ErrTransportClosed
	}
	d := t.conns[to]
	if d != nil && d.usable() {
		t.mu.Unlock()
		return d.wait(req.Context())
	}
	d = &dialed{done: make(chan struct{})}
	if t.conns == nil {
		t.conns = map[destination]*dialed{}
	}
	t.conns[to] = d
	t.mu.Unlock()
	// The connection is everybody's: the end of this request does not end the dialing for others.
	go func() {
		ctx := context.WithoutCancel(req.Context())
		if t.ShareConnections {
			d.c = t.shared(ctx, to)
			d.shared = d.c != nil
		}
		if d.c == nil {
			d.c, d.err = t.dial(ctx, to, again)
		}
		if d.err != nil {
			t.drop(to, d)
		}
		close(d.done)
	}()
	return d.wait(req.Context())
}

// complete reports whether the connection is open, or failed to.
func (d *dialed) complete() bool {
	select {
	case <-d.done:
		return true
	default:
		return false
	}
}

// usable reports whether new requests may use the connection.
func (d *dialed) usable() bool {
	return !d.complete() || d.err == nil && d.c.ctx.Err() == nil && !d.c.goingAway()
}

func (d *dialed) close() {
	if d.c != nil {
		_ = d.c.q.CloseWithError(uint64(NoError), "")
	}
}

func (d *dialed) wait(ctx context.Context) (*clientConn, error) {
	select {
	case <-d.done:
		return d.c, d.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// forget has no further requests use the connection.
func (t *Transport) forget(to destination, c *clientConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d := t.conns[to]; d != nil && d.c == c {
		delete(t.conns, to)
	}
}

func (t *Transport) drop(to destination, d *dialed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conns[to] == d {
		delete(t.conns, to)
	}
}

// CloseIdleConnections closes connections without requests under way.
func (t *Transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for to, d := range t.conns {
		select {
		case <-d.done:
		default:
			continue
		}
		if d.c != nil && d.c.active.Load() == 0 {
			delete(t.conns, to)
			d.close()
		}
	}
}

// Close closes all connections, and the socket of its own.
func (t *Transport) Close() error {
	t.mu.Lock()
	t.closed = true
	conns, q := t.conns, t.quic
	t.conns, t.quic = nil, nil
	t.mu.Unlock()
	for _, d := range conns {
		select {
		case <-d.done:
			d.close()
		default:
			go func() { // it is being opened
				<-d.done
				d.close()
			}()
		}
	}
	if q != nil {
		return q.Close()
	}
	return nil
}

// authority returns :authority of a request.
func authority(req *http.Request) string {
	host := req.Host
	if host == "" {
		host = req.URL.Host
	}
	if i := strings.LastIndexByte(host, '@'); i >= 0 {
		host = host[i+1:] // RFC 9114 4.3.1: no user information
	}
	if req.Method == http.MethodConnect && len(req.Header[":protocol"]) == 0 {
		return hostPort(req)
	}
	return host
}
