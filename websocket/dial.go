package websocket

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// DialOptions configures Dial. The zero value is valid.
type DialOptions struct {
	// Conn configures the connection. Its Deflate is what the client offers: zero offers no
	// compression. Subprotocol and Received are ignored.
	Conn ConnOptions
	// Subprotocols are offered in this order.
	Subprotocols []string
	// Header has further headers of the request, such as Authorization, Cookie and Origin. Host
	// replaces that of the URL.
	Header http.Header
	// DialContext opens the connection; nil is that of net.Dialer. Package socket's stack has one.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
	// TLS configures wss; nil is the default of crypto/tls. Dial sets ServerName, if it is empty, and
	// NextProtos.
	TLS *tls.Config
	// RoundTripper, if set, makes the handshake instead, as extended CONNECT over HTTP/2 (RFC 8441) or
	// HTTP/3 (RFC 9220), and DialContext and TLS are not used. It must take the pseudo-header
	// :protocol from Request.Header and send the body while it receives: Transport of
	// golang.org/x/net/http2 and that of package http3 do, http.Transport refuses the header.
	RoundTripper http.RoundTripper
	// Trace, if set, is called with the request and its response, accepted or not. It borrows both
	// and does not read the body.
	Trace func(*http.Request, *http.Response)
}

func (o *DialOptions) trace(r *http.Request, resp *http.Response) {
	if o.Trace != nil {
		o.Trace(r, resp)
	}
}

// HandshakeError reports a server's response that is not the one that the protocol demands.
type HandshakeError struct {
	Status int         // of HTTP
	Header http.Header // of the response
	Body   []byte      // its beginning, at most 1 KiB
	Text   string      // what was wrong
}

// Error describes the response.
func (e *HandshakeError) Error() string { return "websocket: " + e.Text }

// maxHandshake bounds the header of a response in bytes.
const maxHandshake = 64 << 10

// Dial opens a connection to a URL with the scheme ws or wss (or http or https, which mean the same), and
// makes the client's handshake (RFC 6455 4.1). It follows no redirections and uses no proxy. ctx
// bounds the dialing and the handshake, not the connection. Beside *HandshakeError it
// returns the errors of DialContext and crypto/tls.
func Dial(ctx context.Context, rawURL string, o *DialOptions) (*Conn, error) {
	if o == nil {
		o = &DialOptions{}
	}
	u, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	if err := o.Conn.Deflate.check(); err != nil {
		return nil, err
	}
	for _, p := range o.Subprotocols {
		if !isToken(p) {
			return nil, fmt.Errorf("websocket: subprotocol %q is not a token (RFC 6455 4.1)", p)
		}
	}
	if o.RoundTripper != nil {
		return dialStream(ctx, u, o)
	}
	stream, err := dialTransport(ctx, u, o)
	if err != nil {
		return nil, fmt.Errorf("websocket: %w", err)
	}
	// The end of ctx ends the handshake by a deadline in the past.
	stop := context.AfterFunc(ctx, func() { _ = stream.SetDeadline(time.Unix(1, 0)) })
	c, err := upgrade(ctx, stream, u, o)
	if !stop() && err == nil {
		err = ctx.Err() // it ended at the last moment
	}
	if err != nil {
		_ = stream.Close()
		if ctx.Err() != nil {
			err = fmt.Errorf("websocket: handshake with %s: %w", u.Host, ctx.Err())
		}
		return nil, err
	}
	return c, nil
}

// parseURL checks a URL (RFC 6455 3) and gives it the scheme http or https.
func parseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("websocket: %w", err)
	}
	switch u.Scheme {
	case "ws", "http":
		u.Scheme = "http"
	case "wss", "https":
		u.Scheme = "https"
	default:
		return nil, fmt.Errorf("websocket: URL %q has the scheme %q, want ws or wss", raw, u.Scheme)
	}
	if u.Hostname() == "" {
		return nil, fmt.Errorf("websocket: URL %q has no host", raw)
	}
	if u.Fragment != "" || strings.Contains(raw, "#") {
		return nil, fmt.Errorf("websocket: URL %q has a fragment (RFC 6455 3)", raw)
	}
	return u, nil
}

// dialTransport opens the TCP connection, and TLS for wss.
func dialTransport(ctx context.Context, u *url.URL, o *DialOptions) (net.Conn, error) {
	dial := o.DialContext
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	stream, err := dial(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil || u.Scheme == "http" {
		return stream, err
	}
	config := o.TLS.Clone()
	if config == nil {
		config = &tls.Config{}
	}
	if config.ServerName == "" {
		config.ServerName = u.Hostname()
	}
	config.NextProtos = []string{"http/1.1"} // the only one with Upgrade
	secure := tls.Client(stream, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = stream.Close()
		return nil, err
	}
	return secure, nil
}

// newRequest returns the request that both forms of the handshake share.
func newRequest(ctx context.Context, method string, u *url.URL, o *DialOptions) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("websocket: %w", err)
	}
	if o.Header != nil {
		r.Header = o.Header.Clone()
	}
	if host := r.Header.Get("Host"); host != "" {
		r.Host = host
		r.Header.Del("Host")
	}
	if user := u.User; user != nil && r.Header.Get("Authorization") == "" {
		password, _ := user.Password()
		r.SetBasicAuth(user.Username(), password)
	}
	r.Header.Set("Sec-WebSocket-Version", "13")
	if len(o.Subprotocols) > 0 {
		r.Header.Set("Sec-WebSocket-Protocol", strings.Join(o.Subprotocols, ", "))
	}
	if offer := offerDeflate(o.Conn.Deflate); offer != "" {
		r.Header.Set("Sec-WebSocket-Extensions", offer)
	}
	return r, nil
}

// upgrade makes the handshake of HTTP/1.1.
func upgrade(ctx context.Context, stream net.Conn, u *url.URL, o *DialOptions) (*Conn, error) {
	r, err := newRequest(ctx, http.MethodGet, u, o)
	if err != nil {
		return nil, err
	}
	key := NewKey()
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "websocket")
	r.Header.Set("Sec-WebSocket-Key", key)
	if err := r.Write(stream); err != nil {
		return nil, fmt.Errorf("websocket: sending the request: %w", err)
	}
	limited := &io.LimitedReader{R: stream, N: maxHandshake}
	br := bufio.NewReader(limited)
	resp, err := http.ReadResponse(br, r)
	if err != nil {
		return nil, fmt.Errorf("websocket: reading the response: %w", err)
	}
	o.trace(r, resp)
	if err := checkUpgraded(resp, key); err != nil {
		_ = stream.SetReadDeadline(time.Now().Add(lingerTimeout)) // of the body, which may have no end
		return nil, refused(resp, err.Error())
	}
	conn, err := agree(resp, o)
	if err != nil {
		return nil, err
	}
	conn.Received, _ = br.Peek(br.Buffered())
	return NewConn(stream, Client, conn), nil
}

// checkUpgraded checks a response of HTTP/1.1 (RFC 6455 4.1).
func checkUpgraded(resp *http.Response, key string) error {
	switch {
	case resp.StatusCode != http.StatusSwitchingProtocols:
		return fmt.Errorf("the server answered %s, want 101 Switching Protocols", resp.Status)
	case !hasToken(resp.Header, "Connection", "upgrade") || !hasToken(resp.Header, "Upgrade", "websocket"):
		return errors.New("the response has no Connection: Upgrade and Upgrade: websocket")
	case resp.Header.Get("Sec-WebSocket-Accept") != AcceptKey(key):
		return errors.New("the response has the wrong Sec-WebSocket-Accept")
	}
	return nil
}

// refused returns the error of a response.
func refused(resp *http.Response, text string) error {
	e := &HandshakeError{Status: resp.StatusCode, Header: resp.Header, Text: text}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		e.Body, _ = io.ReadAll(io.LimitReader(resp.Body, 1024))
	}
	return e
}

// agree returns the options of the connection by what the server chose.
func agree(resp *http.Response, o *DialOptions) (conn ConnOptions, err error) {
	conn = o.Conn
	conn.Received = nil
	chosen, err := parseExtensions(resp.Header.Values("Sec-WebSocket-Extensions"))
	if err == nil {
		conn.Deflate, err = confirmDeflate(chosen, o.Conn.Deflate)
	}
	if err != nil {
		return conn, &HandshakeError{Status: resp.StatusCode, Header: resp.Header, Text: strings.TrimPrefix(err.Error(), "websocket: ")}
	}
	conn.Subprotocol = resp.Header.Get("Sec-WebSocket-Protocol")
	if conn.Subprotocol != "" && !slices.Contains(o.Subprotocols, conn.Subprotocol) {
		return conn, &HandshakeError{
			Status: resp.StatusCode, Header: resp.Header,
			Text: fmt.Sprintf("the server chose the subprotocol %q, which was not offered", conn.Subprotocol),
		}
	}
	return conn, nil
}

// dialStream makes the handshake as an extended CONNECT. The request lives as long as the connection, so
// ctx cancels it only until the response is there.
func dialStream(ctx context.Context, u *url.URL, o *DialOptions) (*Conn, error) {
	lifetime, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	r, err := newRequest(lifetime, http.MethodConnect, u, o)
	if err != nil {
		cancel()
		return nil, err
	}
	r.Header[":protocol"] = []string{"websocket"}
	body, w := io.Pipe()
	r.Body, r.ContentLength = body, -1
	resp, err := o.RoundTripper.RoundTrip(r)
	if !stop() && err == nil {
		_ = resp.Body.Close()
		err = ctx.Err()
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("websocket: %w", err)
	}
	o.trace(r, resp)
	var conn ConnOptions
	if resp.StatusCode < 200 || resp.StatusCode > 299 { // RFC 8441 5
		err = refused(resp, fmt.Sprintf("the server answered %s, want 200 OK", resp.Status))
	} else {
		conn, err = agree(resp, o)
	}
	if err != nil {
		cancel()
		_ = resp.Body.Close()
		return nil, err
	}
	return NewConn(&clientStream{PipeWriter: w, body: resp.Body, cancel: cancel}, Client, conn), nil
}

// clientStream is the stream of an extended CONNECT. It has no deadlines.
type clientStream struct {
	*io.PipeWriter // the request's body
	body           io.ReadCloser
	cancel         context.CancelFunc
}

func (s *clientStream) Read(p []byte) (int, error) { return s.body.Read(p) }

// CloseWrite ends the request's body.
func (s *clientStream) CloseWrite() error { return s.PipeWriter.Close() }

// Close ends both directions.
func (s *clientStream) Close() error {
	_ = s.PipeWriter.Close()
	err := s.body.Close()
	s.cancel()
	return err
}
