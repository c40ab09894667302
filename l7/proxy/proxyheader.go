package proxy

import (
	"net/netip"
	"slices"

	ctls "crypto/tls"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/proxyproto"
	"github.com/millrace/millrace/semantics"
)

// headerReader is the session of a connection that begins with a header of the PROXY protocol. What it says of the client's
// address holds for the connection from then on.
type headerReader struct {
	l    *link.Link
	info *clientInfo
	held []byte // a part of the header
}

// sendsHeader reports whether connections of a peer begin with a header. The configuration decides by the peer's
// address, never the first bytes: any client could send a header, and choose the address that rules and logs have for
// it (specification, section 2).
func (ln *Listener) sendsHeader(peer netip.Addr) bool {
	peer = peer.Unmap()
	return slices.ContainsFunc(ln.ProxyProtocol, func(p netip.Prefix) bool { return p.Contains(peer) })
}

// newHeaderReader waits for the header, for the time of a handshake: a sender has it ready as soon as it connects (section 2).
func newHeaderReader(l *link.Link, info *clientInfo) {
	l.Session = &headerReader{l: l, info: info}
	l.Deadline(&l.InputBy, info.listener.Timeouts.Handshake)
}

// Input implements link.Session. A header may come in parts, though senders are to send it at once (section 2): what there is of it is
// held, which Parse bounds.
func (a *headerReader) Input(p []byte, fin bool) int {
	before := len(a.held)
	all := p
	if before > 0 {
		a.held = append(a.held, p...)
		all = a.held
	}
	h, n, err := proxyproto.Parse(all, 0)
	switch {
	case err != nil || n == 0 && fin:
		a.refuse()
		return len(p)
	case n == 0:
		if before == 0 {
			a.held = append(a.l.Runner.GetBuffer(), p...)
		}
		return len(p)
	}
	a.info.relayed(&h) // h lies in all
	a.l.Runner.PutBuffer(&a.held)
	return a.begin(p, n-before)
}

// begin serves what follows the header, from p[n]. It returns how much of p is taken. With TLS the rest is ciphertext, which is the
// engine's: the link would take what is not taken here for plaintext.
func (a *headerReader) begin(p []byte, n int) int {
	l := a.l
	l.InputBy = clock.Never
	a.info.at.w.begin(l, a.info)
	if l.Engine == nil || l.Closed() {
		return n
	}
	if n < len(p) { // it is the engine's
		l.Raw = append(l.Runner.GetBuffer(), p[n:]...)
	}
	return len(p)
}

// refuse ends a connection without a valid header (section 2: the receiver must abort).
func (a *headerReader) refuse() {
	a.info.at.w.counters.headers.Add(1)
	a.info.at.w.recordRefused(a.info, "PROXY", 0, errRequest.name, "no valid header")
	a.l.Runner.PutBuffer(&a.held)
	a.l.Abort()
}

// Writable, Expired and Failed implement link.Session. Nothing is written before the header. A time-out is a refusal, since the peer
// was to send one.
func (a *headerReader) Writable()    {}
func (a *headerReader) Expired(bool) { a.refuse() }
func (a *headerReader) Failed(error) { a.l.Runner.PutBuffer(&a.held) }

// Drain implements drainer: the header may be on its way.
func (a *headerReader) Drain() {}

// relayed takes over what a header says. With LOCAL, and of other protocols than TCP, the connection's addresses stay:
// LOCAL is what the sender's own health checks use (specification, 2.2).
func (c *clientInfo) relayed(h *proxyproto.Header) {
	if !h.Relays() || h.Transport != proxyproto.Stream {
		return
	}
	c.addr, c.local = unmapped(h.Source), unmapped(h.Destination)
	if c.listener.TLS != nil {
		return // TLS ends here: the client's own hello says the rest
	}
	if ssl, ok := h.TLVs.SSL(); ok && ssl.Client&proxyproto.ClientSSL != 0 {
		c.tls = true
	}
	if name, ok := h.TLVs.Find(proxyproto.TypeAuthority); ok {
		c.sni, _ = semantics.NormalizeHost(string(name))
	}
}

// unmapped returns an IPv4 address that came as IPv4-mapped as itself: rules and logs have one form of it.
func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// ProxyHeader is the header that begins connections to the backends of a pool. The zero value is none.
//
// A connection with a header belongs to one client: it carries requests of that client's connection only, and ends with it.
type ProxyHeader struct {
	Version uint8 // 1 or 2; 0 is no header
	// TLVs adds what is known of the client's TLS, in version 2: the server name, the protocol of ALPN, the version, and
	// the common name of a verified certificate.
	TLVs bool
}

// appendHeader appends the header of a connection on behalf of a client. It must be the first bytes, before TLS,
// because the receiver reads it before it knows what follows.
func (p *Pool) appendHeader(dst []byte, c *clientInfo) []byte {
	local := c.local
	if !local.IsValid() && c.link != nil && c.link.Conn != nil {
		local = c.link.Conn.Local()
	}
	if !local.IsValid() { // of HTTP/3, or the connection has ended meanwhile
		local = c.listener.Address
	}
	h := proxyproto.TCP(p.ProxyHeader.Version, c.addr, local)
	if p.ProxyHeader.TLVs && h.Version == 2 {
		h.TLVs = c.tlvs()
	}
	out, err := h.Append(dst)
	if err != nil { // an address is not known: so says the header
		h = proxyproto.Header{Version: p.ProxyHeader.Version}
		out, _ = h.Append(dst)
	}
	return out
}

// Local returns the header of a connection that the gateway opens for itself, as for a probe; "" if there is none.
func (h ProxyHeader) Local() string {
	if h.Version == 0 {
		return ""
	}
	local := proxyproto.Header{Version: h.Version, Local: true}
	b, _ := local.Append(nil) // it cannot fail without addresses
	return string(b)
}

// sendHeader sends the header before anything else, TLS too. With TLS it is put among the sealed records: the engine would
// encrypt it.
func (s *backConn) sendHeader() {
	l := s.link
	if l.Engine == nil {
		l.Out = s.key.pool.appendHeader(l.Buffer(), s.client)
	} else {
		l.Sealed = s.key.pool.appendHeader(l.Runner.GetBuffer(), s.client)
	}
	l.Touch()
}

// tlvs returns what is known of the client's TLS. A receiver refuses a header that is too long, so that each is bounded.
func (c *clientInfo) tlvs() (t proxyproto.TLVs) {
	if c.protocol != "" {
		t, _ = t.Append(proxyproto.TypeALPN, []byte(c.protocol))
	}
	if c.sni != "" {
		t, _ = t.Append(proxyproto.TypeAuthority, []byte(c.sni))
	}
	if c.version == 0 {
		return t
	}
	s := proxyproto.SSL{Client: proxyproto.ClientSSL, Verify: 1}
	s.TLVs, _ = s.TLVs.Append(proxyproto.SubtypeVersion, []byte(versionName(c.version)))
	if c.peer != nil {
		s.Client |= proxyproto.ClientCertConn | proxyproto.ClientCertSession
		s.Verify = 0 // the handshake has verified it
		if name := c.peer.Subject.CommonName; len(name) <= maxCommonName {
			s.TLVs, _ = s.TLVs.Append(proxyproto.SubtypeCommonName, []byte(name))
		}
	}
	t, _ = t.AppendSSL(s)
	return t
}

// maxCommonName bounds a name in a header, which receivers bound. X.520 permits 64 characters.
const maxCommonName = 255

// versionName is a version of TLS as HAProxy and OpenSSL write it.
func versionName(v uint16) string {
	if v == ctls.VersionTLS13 {
		return "TLSv1.3"
	}
	return "TLSv1.2"
}

// owner returns whose alone a connection to a backend of a pool is, nil if it is no one's. The header is sent once for
// a connection: a request of another client on it would be logged, and permitted, as the first client's.
func (p *Pool) owner(c *clientInfo) *clientInfo {
	if p.ProxyHeader.Version == 0 || p.Protocol == HTTP3 { // QUIC has no place for a header
		return nil
	}
	return c
}

// disown closes the connections to backends that belong to a client who has left.
func (w *Worker) disown(c *clientInfo) {
	c.gone = true
	for _, k := range c.owns {
		bs := w.backs[k]
		if bs == nil {
			continue
		}
		bs.retire()
		w.forget(k)
	}
	c.owns = nil
}
