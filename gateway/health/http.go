package health

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// maxHeader bounds status line and header fields of an answer, and those of 1xx answers before it.
const maxHeader = 64 << 10

// past is a deadline that ends every wait.
var past = time.Unix(1, 0)

// httpProbe sends one request on a connection of its own (RFC 9112 9.6: "close"). It speaks
// HTTP/1.1 without net/http's client, which may go on dialing after a request has ended.
type httpProbe struct {
	HTTP
	conn Conn
	dial Dialer
	url  url.URL // without a host
	tls  *tls.Config
	// message is that of a call of gRPC, whose answer judge evaluates; nil is a plain request.
	message []byte
	judge   func(resp *http.Response) error
}

// newHTTPProbe returns the probe of a validated check.
func newHTTPProbe(c *Check, dial Dialer) *httpProbe {
	p := &httpProbe{HTTP: c.HTTP, conn: c.Conn, dial: dial}
	if u, err := url.ParseRequestURI(c.HTTP.Path); err == nil {
		p.url = *u
	}
	p.url.Scheme = string(c.Type)
	if c.Type == TypeHTTPS {
		p.tls = c.tlsConfig()
	}
	return p
}

// tlsConfig returns the settings of the pool, changed by the check's keys. Sessions are not resumed: each probe sees the
// certificate.
func (c *Check) tlsConfig() *tls.Config {
	t := &tls.Config{}
	if c.Conn.TLS != nil {
		t = c.Conn.TLS.Clone()
		t.ClientSessionCache = nil
	}
	switch {
	case c.HTTP.Insecure: // the operator asks for it
		t.InsecureSkipVerify, t.VerifyConnection = true, nil
	case c.HTTP.CA != "":
		t.InsecureSkipVerify, t.RootCAs = false, x509.NewCertPool()
		t.RootCAs.AppendCertsFromPEM([]byte(c.HTTP.CA))
	}
	return t
}

// ask makes a connection, sends the request and evaluates the response.
func (p *httpProbe) ask(ctx context.Context, t Target) error {
	conn, err := open(ctx, p.dial, p.conn.Preamble, t)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(past) })()
	if p.tls != nil {
		secure := tls.Client(conn, p.tlsFor(t))
		if err := secure.HandshakeContext(ctx); err != nil {
			return fmt.Errorf("handshake: %w", bare(err))
		}
		if p.conn.HTTP2 && secure.ConnectionState().NegotiatedProtocol != "h2" {
			return fmt.Errorf("%w: HTTP/2 is not negotiated", ErrAnswer)
		}
		conn = secure
	}
	if p.conn.FastCGI != "" {
		return p.exchangeScript(conn, t)
	}
	if p.conn.HTTP2 {
		return p.exchange2(ctx, conn, t)
	}
	return p.exchange(conn, t)
}

// tlsFor returns the settings for a target: the name of the check, of the pool, or of the request, else the target's address.
func (p *httpProbe) tlsFor(t Target) *tls.Config {
	c := p.tls.Clone()
	switch {
	case p.ServerName != "":
		c.ServerName = p.ServerName
	case c.ServerName != "":
	case p.Host != "":
		c.ServerName = (&url.URL{Host: p.Host}).Hostname()
	default:
		c.ServerName = t.host()
	}
	return c
}

// request returns the request for a target.
func (p *httpProbe) request(t Target) *http.Request {
	u := p.url
	u.Host = t.authority()
	return &http.Request{
		Method: p.Method, URL: &u, Host: p.Host, Close: true,
		Header: http.Header{"User-Agent": {"millrace-health"}, "Accept": {"*/*"}},
	}
}

// exchange2 is exchange with HTTP/2. The transport has this connection and no other.
func (p *httpProbe) exchange2(ctx context.Context, conn net.Conn, t Target) error {
	var only sync.Once
	dial := func(context.Context, string, string) (c net.Conn, err error) {
		err = net.ErrClosed
		only.Do(func() { c, err = conn, nil })
		return c, err
	}
	tr := &http.Transport{
		DialContext: dial, DialTLSContext: dial, DisableCompression: true, MaxResponseHeaderBytes: maxHeader, Protocols: new(http.Protocols),
	}
	tr.Protocols.SetHTTP2(p.tls != nil)
	tr.Protocols.SetUnencryptedHTTP2(p.tls == nil)
	defer tr.CloseIdleConnections()
	req := p.request(t)
	if p.message != nil {
		callOf(req, p.message)
	}
	resp, err := tr.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("http: %w", bare(err))
	}
	defer resp.Body.Close()
	if p.judge != nil {
		return p.judge(resp)
	}
	return p.evaluate(resp)
}

// exchange sends the request and reads the answer.
func (p *httpProbe) exchange(conn net.Conn, t Target) error {
	req := p.request(t)
	if err := req.Write(conn); err != nil {
		return err
	}
	limited := &io.LimitedReader{R: conn, N: maxHeader}
	answer := bufio.NewReader(limited)
	resp, err := http.ReadResponse(answer, req)
	for err == nil && resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
		resp, err = http.ReadResponse(answer, req) // informational: the final one follows (RFC 9110 15.2)
	}
	if err != nil && limited.N <= 0 {
		return fmt.Errorf("%w: more than %d bytes of header", ErrAnswer, maxHeader)
	}
	if err != nil {
		return fmt.Errorf("http: %w", bare(err))
	}
	defer resp.Body.Close()
	limited.N += maxBody + maxHeader // chunks have a frame
	return p.evaluate(resp)
}

// evaluate compares status and body with what is expected.
func (p *httpProbe) evaluate(resp *http.Response) error {
	if !p.expects(resp.StatusCode) {
		return fmt.Errorf("%w: status %d, not %s", ErrAnswer, resp.StatusCode, statusList(p.Status))
	}
	if p.Body == "" {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if bytes.Contains(body, []byte(p.Body)) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("http: body: %w", bare(err))
	}
	return fmt.Errorf("%w: the body (%d bytes read) lacks %q", ErrAnswer, len(body), shorten(p.Body))
}

// expects reports whether a status is a success.
func (p *httpProbe) expects(code int) bool {
	for _, r := range p.Status {
		if r.First <= code && code <= r.Last {
			return true
		}
	}
	return false
}

// shorten returns at most the first 64 bytes of s, for messages.
func shorten(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "..."
	}
	return s
}
