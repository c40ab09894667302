package websocket

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
)

// AcceptOptions configures Accept. The zero value is valid.
type AcceptOptions struct {
	// Conn configures the connection. Its Deflate states what the server accepts: zero declines
	// compression. Subprotocol and Received are ignored.
	Conn ConnOptions
	// Subprotocols are those that the server speaks. The first that the client offers and that is one
	// of them is chosen; without a match there is none.
	Subprotocols []string
	// OriginPatterns are the hosts beside the request's own from which browsers may connect, as
	// patterns of path.Match over the host and port of the Origin header ("*.example.com").
	// A browser sends the user's cookies with a request from any site, so a server that
	// trusts them must check the origin (RFC 6455 10.2).
	OriginPatterns []string
	// AnyOrigin turns the check of the Origin header off.
	AnyOrigin bool
}

// Accept completes a client's handshake (RFC 6455 4.2) and returns the connection. On an error it has sent
// the response, which names the reason.
//
// Over HTTP/1.1 it takes the connection from the server, and the handler may return. Over
// HTTP/2 (RFC 8441) and HTTP/3 (RFC 9220) the connection is a stream that ends when the handler returns.
// net/http of Go 1.26 accepts the extended CONNECT of HTTP/2 only when the program runs with
// GODEBUG=http2xconnect=1.
func Accept(w http.ResponseWriter, r *http.Request, o *AcceptOptions) (*Conn, error) {
	if o == nil {
		o = &AcceptOptions{}
	}
	if err := o.Conn.Deflate.check(); err != nil {
		http.Error(w, "internal server error", http.StatusInternalServerError)
		return nil, err
	}
	check := checkUpgrade
	if r.ProtoMajor >= 2 {
		check = checkConnect
	}
	status, err := check(w.Header(), r)
	if err == nil && !o.AnyOrigin {
		status, err = checkOrigin(r, o.OriginPatterns)
	}
	var offers []extension
	if err == nil {
		offers, err = parseExtensions(r.Header.Values("Sec-WebSocket-Extensions"))
		status = http.StatusBadRequest
	}
	if err != nil {
		http.Error(w, strings.TrimPrefix(err.Error(), "websocket: "), status)
		return nil, err
	}
	conn := o.Conn
	conn.Subprotocol = chooseSubprotocol(r.Header, o.Subprotocols)
	var response string
	conn.Deflate, response = acceptDeflate(offers, o.Conn.Deflate)
	if response != "" {
		w.Header().Set("Sec-WebSocket-Extensions", response)
	}
	if conn.Subprotocol != "" {
		w.Header().Set("Sec-WebSocket-Protocol", conn.Subprotocol)
	}
	if r.ProtoMajor >= 2 {
		return acceptStream(w, r, conn)
	}
	return acceptHijacked(w, r, conn)
}

// checkUpgrade checks the request of HTTP/1.1 (RFC 6455 4.2.1) and returns the status of the refusal.
func checkUpgrade(h http.Header, r *http.Request) (status int, err error) {
	switch {
	case r.Method != http.MethodGet:
		h.Set("Allow", http.MethodGet)
		return http.StatusMethodNotAllowed, fmt.Errorf("websocket: method %s, want GET", r.Method)
	case !r.ProtoAtLeast(1, 1):
		return http.StatusHTTPVersionNotSupported, fmt.Errorf("websocket: %s, want HTTP/1.1", r.Proto)
	case !hasToken(r.Header, "Connection", "upgrade") || !hasToken(r.Header, "Upgrade", "websocket"):
		h.Set("Connection", "Upgrade")
		h.Set("Upgrade", "websocket")
		return http.StatusUpgradeRequired, errors.New("websocket: the request has no Connection: Upgrade and Upgrade: websocket")
	}
	if status, err := checkVersion(h, r); err != nil {
		return status, err
	}
	keys := r.Header.Values("Sec-WebSocket-Key")
	if len(keys) != 1 {
		return http.StatusBadRequest, fmt.Errorf("websocket: %d headers Sec-WebSocket-Key, want one", len(keys))
	}
	if key, err := base64.StdEncoding.DecodeString(keys[0]); err != nil || len(key) != 16 {
		return http.StatusBadRequest, errors.New("websocket: Sec-WebSocket-Key is not 16 bytes in base64")
	}
	return 0, nil
}

// checkVersion refuses other versions than 13, and names that one (RFC 6455 4.4).
func checkVersion(h http.Header, r *http.Request) (status int, err error) {
	if v := r.Header.Get("Sec-WebSocket-Version"); v != "13" {
		h.Set("Sec-WebSocket-Version", "13")
		return http.StatusUpgradeRequired, fmt.Errorf("websocket: version %q, want 13", v)
	}
	return 0, nil
}

// checkConnect checks the extended CONNECT of HTTP/2 and HTTP/3 (RFC 8441 5).
func checkConnect(h http.Header, r *http.Request) (status int, err error) {
	// net/http has the pseudo-header among the headers, quic-go in Proto.
	protocol := r.Header.Get(":protocol")
	if protocol == "" && r.ProtoMajor == 3 {
		protocol = r.Proto
	}
	switch {
	case r.Method != http.MethodConnect:
		h.Set("Allow", http.MethodConnect)
		return http.StatusMethodNotAllowed, fmt.Errorf("websocket: method %s over HTTP/%d, want CONNECT", r.Method, r.ProtoMajor)
	case protocol != "websocket":
		return http.StatusNotImplemented, fmt.Errorf("websocket: CONNECT with the protocol %q, want websocket", protocol)
	}
	return checkVersion(h, r)
}

// checkOrigin refuses browsers at pages of other hosts. Clients that are no browsers send no Origin.
func checkOrigin(r *http.Request, patterns []string) (status int, err error) {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return 0, nil
	}
	u, err := url.Parse(origin)
	if err != nil {
		return http.StatusForbidden, fmt.Errorf("websocket: malformed Origin %q", origin)
	}
	if u.Host != "" && strings.EqualFold(u.Host, r.Host) {
		return 0, nil
	}
	for _, p := range patterns {
		switch ok, err := path.Match(strings.ToLower(p), strings.ToLower(u.Host)); {
		case err != nil:
			return http.StatusInternalServerError, fmt.Errorf("websocket: OriginPatterns: %q: %w", p, err)
		case ok && u.Host != "":
			return 0, nil
		}
	}
	return http.StatusForbidden, fmt.Errorf("websocket: origin %q is not allowed for host %q", origin, r.Host)
}

// chooseSubprotocol returns the first subprotocol of the client that the server speaks.
func chooseSubprotocol(h http.Header, ours []string) string {
	for _, p := range tokens(h, "Sec-WebSocket-Protocol") {
		if slices.Contains(ours, p) {
			return p
		}
	}
	return ""
}

// acceptHijacked answers over HTTP/1.1 and takes the connection from the server.
func acceptHijacked(w http.ResponseWriter, r *http.Request, o ConnOptions) (*Conn, error) {
	stream, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "internal server error", http.StatusInternalServerError)
		return nil, fmt.Errorf("websocket: taking the connection from the HTTP server: %w", err)
	}
	h := w.Header().Clone()
	h.Set("Connection", "Upgrade")
	h.Set("Upgrade", "websocket")
	h.Set("Sec-WebSocket-Accept", AcceptKey(r.Header.Get("Sec-WebSocket-Key")))
	_ = stream.SetDeadline(time.Now().Add(DefaultCloseTimeout)) // of the server, from here ours
	_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	_ = h.Write(rw)
	_, _ = rw.WriteString("\r\n")
	if err := rw.Flush(); err != nil { // has the errors of all writes
		_ = stream.Close()
		return nil, fmt.Errorf("websocket: sending the response: %w", err)
	}
	_ = stream.SetDeadline(time.Time{})
	o.Received, _ = rw.Reader.Peek(rw.Reader.Buffered())
	return NewConn(stream, Server, o), nil
}

// acceptStream answers over HTTP/2 or HTTP/3.
func acceptStream(w http.ResponseWriter, r *http.Request, o ConnOptions) (*Conn, error) {
	s := &serverStream{body: r.Body, w: w, control: http.NewResponseController(w)}
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		s.local = a
	}
	w.WriteHeader(http.StatusOK)
	if err := s.control.Flush(); err != nil {
		return nil, fmt.Errorf("websocket: sending the response: %w", err)
	}
	return NewConn(s, Server, o), nil
}

// serverStream is the stream of an extended CONNECT.
type serverStream struct {
	body    io.ReadCloser
	w       io.Writer
	control *http.ResponseController
	local   net.Addr // nil if unknown
}

func (s *serverStream) Read(p []byte) (int, error) { return s.body.Read(p) }

// Write sends p at once: a response is buffered otherwise.
func (s *serverStream) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err == nil {
		err = s.control.Flush()
	}
	return n, err
}

// Close ends the reading. The end of the handler ends the writing.
func (s *serverStream) Close() error { return s.body.Close() }

func (s *serverStream) SetReadDeadline(t time.Time) error  { return s.control.SetReadDeadline(t) }
func (s *serverStream) SetWriteDeadline(t time.Time) error { return s.control.SetWriteDeadline(t) }

// LocalAddr returns the server's address.
func (s *serverStream) LocalAddr() net.Addr {
	if s.local == nil {
		return addr{}
	}
	return s.local
}
