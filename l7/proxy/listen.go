package proxy

import (
	ctls "crypto/tls"
	"crypto/x509"
	"net/netip"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/quicconn"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/l7/transport"
	"github.com/millrace/millrace/semantics"
	"github.com/millrace/millrace/tls"
)

// clientInfo holds the properties of a connection's client. It lives as long as the connection, across reloads: listener is the
// description of the last request, while at is the socket, which stays. Only the loop of at.w reads and writes it.
type clientInfo struct {
	at       *listening // where it came in
	listener *Listener  // as at described it when the last request began
	addr     netip.AddrPort
	sni, ja4 string
	alpn     []string       // protocols that the client offers, if rules ask for them
	local    netip.AddrPort // what the client connected to, where a PROXY header says it

	isProxied bool           // with HTTP/3: addr is that of a PROXY header
	link      *link.Link     // nil with HTTP/3
	quic      *quicconn.Conn // of HTTP/3, nil otherwise
	conn      side.Client    // nil until the version of HTTP is known, and of a connection that is passed through
	conf      side.Conf      // of listener
	requests  int            // so far

	version  uint16            // of the TLS that ends here, 0 is none
	cipher   uint16            // the same
	protocol string            // of ALPN
	peer     *x509.Certificate // that the client has shown, verified; nil if none

	// The last host that was not the server name, and whether the listener does not serve it. See misdirects.
	host        string
	misdirected bool

	certFields []semantics.Field // for backends, see ClientCert
	owns       []backsKey        // connections to backends that are this client's alone
	gone       bool              // the connection has ended: owns must get no others
	admitted   bool              // with HTTP/3: by the listener's Admission
	tls        bool

	inspected []inspectedConn // one for each policy that something of it was inspected by
	denied    bool            // a rule drops its ClientHello
}

// accept takes a connection of a client. A refused one is reset: the peer learns at once that it is not served, and this host keeps
// no TIME-WAIT for it, of which an attacker could make as many as connections.
func (w *Worker) accept(at *listening, conn transport.Conn) transport.Handler {
	w.Enter()
	ln := at.current
	w.counters.connections.Add(1)
	w.counters.open.Add(1)
	l := link.New(&w.Runner, conn)
	w.fronts[l], l.OnClosed = nil, w.frontClosed
	if !at.admit(l.Remote, "TCP") {
		l.Session = closer{}
		l.Abort()
		return l
	}
	// A reload does not change it for this connection: the link bounds its output from the first byte of the handshake.
	l.OutputTime = ln.Timeouts.Write
	info := &clientInfo{at: at, link: l, addr: l.Remote, tls: ln.TLS != nil}
	w.fronts[l] = info
	info.use(ln)
	if ln.sendsHeader(l.Remote.Addr()) {
		newHeaderReader(l, info)
	} else {
		w.begin(l, info)
	}
	return l
}

// clientClosed forgets the connection of a client. It is called once, however the connection has ended: counters and
// admission would otherwise drift until the listener is full.
func (w *Worker) clientClosed(l *link.Link) {
	info := w.fronts[l]
	w.counters.open.Add(-1)
	delete(w.fronts, l)
	if info == nil {
		return
	}
	info.at.admission.leave()
	if info.owns != nil {
		w.disown(info)
	}
	info.uninspect()
}

// begin begins what the listener does with a connection. With TLS the protocol is known by ALPN (RFC 7301). Without it
// HTTP/2 is distinguished from HTTP/1.1 by its preface, which no request of HTTP/1.1 begins with (RFC 9113 3.4).
func (w *Worker) begin(l *link.Link, info *clientInfo) {
	ln := info.listener
	switch {
	case ln.TLS != nil:
		o := &opening{l: l, info: info}
		l.Session, l.Opening, l.Stage = o, o, link.Handshaking
		l.Engine = tls.NewServerEngine(ln.TLS, tls.EngineOptions{Coroutines: w.coroutines, Signatures: &w.Signatures, Signed: l.Signed})
		l.Deadline(&l.InputBy, ln.Timeouts.Handshake)
		if ln.Table.ReadsHello() || ln.Inspection != nil || ln.Demand != nil {
			l.Watch = (&watch{l: l, info: info, opening: o}).see
		}
	case ln.Stream == StreamTLS:
		newClientHelloReader(l, info)
	case ln.Stream == StreamTCP:
		newPass(l, info, nil)
	case ln.HTTP2 == nil:
		info.speakHTTP1(l)
	case ln.HTTP1 == nil:
		info.speakHTTP2(l)
	default: // both versions without TLS: only the first bytes show which one the client speaks
		l.Session = &prefaceReader{l: l, info: info}
		l.Deadline(&l.InputBy, ln.Timeouts.Header)
	}
}

// Established begins the protocol that the handshake agreed on. A client without ALPN gets HTTP/1.1 where there is one,
// as HTTP/2 over TLS needs ALPN (RFC 9113 3.2).
func (o *opening) Established() {
	l := o.l
	s := l.Engine.ConnectionState()
	o.info.established(&s)
	ln := o.info.listener
	if s.NegotiatedProtocol == acmeTLS { // the handshake was all that the authority has asked for (RFC 8737 3)
		l.Close()
		return
	}
	if o.info.denied {
		o.info.at.w.deniedHello(o.info, "TLS")
		l.Abort()
		return
	}
	if ln.Stream != NoStream {
		l.InputBy = clock.Never
		newPass(l, o.info, nil)
		return
	}
	if ln.HTTP2 != nil && (s.NegotiatedProtocol == "h2" || ln.HTTP1 == nil) {
		o.info.speakHTTP2(l)
		return
	}
	o.info.speakHTTP1(l)
}

// established notes what the handshake says.
func (c *clientInfo) established(s *ctls.ConnectionState) {
	c.version, c.cipher, c.protocol = s.Version, s.CipherSuite, s.NegotiatedProtocol
	c.sni, _ = semantics.NormalizeHost(s.ServerName) // crypto/tls refuses names that end with a dot, and keeps upper case
	if len(s.VerifiedChains) > 0 {                   // a certificate that was not verified names anyone
		c.peer = s.PeerCertificates[0]
		c.certFields = c.listener.ClientCert.Fields(s.VerifiedChains[0])
	}
}

// opening is the session of a TLS handshake of a client. Failures count only once something has come: a port scan that
// connects and leaves is no failed handshake.
type opening struct {
	l     *link.Link
	info  *clientInfo
	begun bool // something of a ClientHello has come

	demand demandState
	leave  func() // ends the wait for a certificate
}

// Input, Writable and Arrived implement link.Session and link.Handshake. The engine takes the bytes of the handshake; Input gets
// none before Established has put another session in its place.
func (o *opening) Input(p []byte, fin bool) int { return len(p) }
func (o *opening) Writable()                    {}
func (o *opening) Arrived()                     { o.begun = true }

// Expired implements link.Session: a handshake that takes too long is reset, since its client may hold many of them open.
func (o *opening) Expired(output bool) {
	if o.demand == demandWaits && !output {
		o.leave()
		o.supplied()
		return
	}
	if o.begun {
		o.info.at.w.handshakeFailed(o.info, errConnectTimeout.name, "no handshake in time")
	}
	o.l.Abort()
}

// Failed implements link.Session. The engine has sent its alert already.
func (o *opening) Failed(err error) {
	if o.demand == demandWaits {
		o.demand = demandOver
		o.leave()
	}
	if o.begun {
		o.info.at.w.handshakeFailed(o.info, errTLS.name, err.Error())
	}
}

// closer is the session of a connection that is refused. It takes all input, so that none is gathered.
type closer struct{}

func (closer) Input(p []byte, _ bool) int { return len(p) }
func (closer) Writable()                  {}
func (closer) Expired(bool)               {}
func (closer) Failed(error)               {}

// prefaceReader distinguishes HTTP/2 by prior knowledge from HTTP/1.1 (RFC 9113 3.3). The first byte that differs from
// the preface decides, so that a short request of HTTP/1.1 waits for nothing.
type prefaceReader struct {
	l    *link.Link
	info *clientInfo
	held []byte // a part of the preface
}

// Input implements link.Session. It gives all that has come to the session of the protocol that it finds, which it calls from then on
// in place of this one.
func (s *prefaceReader) Input(p []byte, fin bool) int {
	n := min(len(p), len(http2.Preface)-len(s.held))
	same := string(p[:n]) == http2.Preface[len(s.held):][:n]
	if same && len(s.held)+n < len(http2.Preface) && !fin {
		s.held = append(s.held, p...)
		return len(p)
	}
	if same {
		s.info.speakHTTP2(s.l)
	} else {
		s.info.speakHTTP1(s.l)
	}
	// The bytes that were read belong to the protocol that was found, the preface included (RFC 9113 3.4).
	if len(s.held) > 0 {
		s.l.Session.Input(s.held, false) // what is shorter than the preface is taken as a whole
	}
	return s.l.Session.Input(p, fin)
}

func (s *prefaceReader) Writable() {}

// Expired implements link.Session. A client that has sent nothing is idle, as between two requests; one that has sent a part of the
// preface has begun input that is refused.
func (s *prefaceReader) Expired(bool) {
	if len(s.held) > 0 {
		s.info.at.w.refuseInput(s.info, "HTTP/2", 0, side.Refusal(http1.Incomplete), 1)
	}
	s.l.Close()
}

func (s *prefaceReader) Failed(error) {}
