package tls

import (
	"context"
	"crypto/fips140"
	"crypto/tls"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/tls/clienthello"
	"github.com/millrace/millrace/tls/handshake13"
)

// This file has what a server's own handshake takes from its Config, and which Configs are crypto/tls's.

// ownConfig reports whether handshakes with a Config may be the engine's own. Otherwise crypto/tls makes all of them:
//
//   - client certificates and what verifies connections: messages that handshake13 does not have;
//   - a source of random numbers, which only crypto/tls can use as it does;
//   - a log of secrets, whose writes crypto/tls serializes over all connections;
//   - no TLS 1.3; records that stay crypto/tls's; Go's FIPS 140-3 mode, as only its own module is validated;
//   - a release of Go whose structs and sessions are not those that this package knows.
func ownConfig(c *tls.Config, o *EngineOptions) bool {
	return ownSupported() && !fips140.Enabled() && !o.StandardRecords && !o.StandardHandshake &&
		c.ClientAuth == tls.NoClientCert && c.VerifyConnection == nil &&
		c.Rand == nil && c.KeyLogWriter == nil && !byName(c) &&
		c.MinVersion <= tls.VersionTLS13 && (c.MaxVersion == 0 || c.MaxVersion >= tls.VersionTLS13)
}

// byName reports whether a Config has a map of certificates, which crypto/tls reads.
func byName(c *tls.Config) bool {
	//lint:ignore SA1019 users may have it
	return c.NameToCertificate != nil
}

// ownSupported reports whether this release of Go is known to have the fields and sessions that the engine relies on.
func ownSupported() bool {
	return fieldsKnown && handshake13.SessionsSupported() && len(defaultGroups()) > 0
}

// defaultGroups are crypto/tls's default key exchanges, the preferred one first. GODEBUG changes them, and a ClientHello
// has the same.
var defaultGroups = sync.OnceValue(func() []tls.CurveID {
	e := NewClientEngine(&tls.Config{ServerName: "example.com", MinVersion: tls.VersionTLS13}, EngineOptions{AnyThread: true})
	defer e.Close()
	var p clienthello.Peeker
	hello, err := p.Parse(e.Pending())
	if err != nil {
		return nil
	}
	return list[tls.CurveID](hello.Groups)
})

// groups returns the key exchanges of a Config.
func groups(c *tls.Config) []tls.CurveID {
	all := defaultGroups()
	if len(c.CurvePreferences) == 0 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(g tls.CurveID) bool { return !slices.Contains(c.CurvePreferences, g) })
}

// list returns the values of a list.
func list[T ~uint16](l clienthello.List16) []T {
	if l.Len() == 0 {
		return nil
	}
	values := make([]T, l.Len())
	for i := range values {
		values[i] = T(l.At(i))
	}
	return values
}

// accept reads the ClientHello and makes the choices. It reports false if the handshake is crypto/tls's.
func (s *serverHandshake) accept() bool {
	if s.hs.Read((*s.held)[recordHeader:]) != handshake13.Accepted {
		return false
	}
	s.name = string(s.hs.Hello.SentName)
	if hasECH(s.user) && s.hs.Hello.HasECH {
		return false
	}
	s.config = s.user
	if s.user.GetConfigForClient != nil && !s.askConfig() {
		return false
	}
	return s.hs.Choose(&handshake13.Options{Groups: groups(s.config), Protocols: s.config.NextProtos}) == handshake13.Accepted
}

// hasECH reports whether a Config may have keys of Encrypted ClientHello.
func hasECH(c *tls.Config) bool {
	return c.EncryptedClientHelloKeys != nil || c.GetEncryptedClientHelloKeys != nil
}

// askedConfig is the answer of GetConfigForClient, which is called once, also if crypto/tls takes over.
type askedConfig struct {
	config *tls.Config
	err    error
}

// askConfig calls GetConfigForClient. Its Config has to be one for own handshakes, and its keys of tickets known: crypto/tls uses
// those of a Config that has some set, which only it can see, and otherwise those of the first Config.
func (s *serverHandshake) askConfig() bool {
	c, err := s.user.GetConfigForClient(s.helloInfo())
	s.asked = &askedConfig{c, err}
	if err != nil || c == nil {
		return err == nil
	}
	s.config = c
	tickets := c.SessionTicketsDisabled || c.WrapSession != nil && c.UnwrapSession != nil
	return tickets && ownConfig(c, &s.e.options) && !(hasECH(c) && s.hs.Hello.HasECH)
}

// helloInfo returns what callbacks get.
func (s *serverHandshake) helloInfo() *tls.ClientHelloInfo {
	if s.info == nil {
		h := &s.hs.Hello
		s.info = &tls.ClientHelloInfo{
			CipherSuites: list[uint16](h.Suites), ServerName: s.name, SupportedCurves: list[tls.CurveID](h.Groups),
			SupportedPoints: slices.Clone(h.PointFormats), SignatureSchemes: list[tls.SignatureScheme](h.Signatures),
			SupportedVersions: list[uint16](h.Versions), Conn: &transport{e: s.e},
		}
		for names := h.ALPN; len(names) > 0; {
			var name []byte
			name, names = names.Next()
			s.info.SupportedProtos = append(s.info.SupportedProtos, string(name))
		}
		s.info.Extensions = make([]uint16, 0, 24) // browsers send about 20
		for typ := range h.Extensions {
			s.info.Extensions = append(s.info.Extensions, typ)
		}
		var ctx context.Context
		ctx, s.cancel = context.WithCancel(context.Background()) // until the handshake ends, as crypto/tls's
		setHello(s.info, ctx, s.user)
	}
	if s.config != nil {
		setHello(s.info, s.info.Context(), s.config)
	}
	return s.info
}

// identify resumes a session, or chooses the certificate.
func (s *serverHandshake) identify() bool {
	if !s.config.SessionTicketsDisabled {
		for i, ticket := range s.hs.Hello.Tickets {
			if resumed, own := s.resume(i, ticket); resumed || !own {
				return own
			}
		}
	}
	s.cert = s.certificate()
	return s.cert != nil && s.hs.Certify(s.cert) == handshake13.Accepted
}

// certificate chooses one as crypto/tls does, nil if there is none.
func (s *serverHandshake) certificate() *tls.Certificate {
	c := s.config
	if c.GetCertificate != nil && (len(c.Certificates) == 0 || s.name != "") {
		if cert, err := c.GetCertificate(s.helloInfo()); cert != nil || err != nil {
			if err != nil {
				return nil
			}
			return cert
		}
	}
	if len(c.Certificates) == 0 {
		return nil
	}
	if len(c.Certificates) > 1 {
		for i := range c.Certificates {
			if s.helloInfo().SupportsCertificate(&c.Certificates[i]) == nil {
				return &c.Certificates[i]
			}
		}
	}
	return &c.Certificates[0]
}

// resume tries a ticket. own is false if crypto/tls has to answer.
func (s *serverHandshake) resume(i int, ticket []byte) (resumed, own bool) {
	unwrap := s.config.UnwrapSession
	if unwrap == nil {
		unwrap = s.user.DecryptTicket
	}
	state, err := unwrap(ticket, *s.connectionState())
	if err != nil || state == nil {
		return false, err == nil
	}
	session, ok := handshake13.ParseSession(state)
	if !ok {
		return false, false // of TLS 1.2, with certificates, or of another making
	}
	if s.now().Sub(session.Created) > handshake13.TicketLifetime*time.Second {
		return false, true
	}
	ok, reason := s.hs.Resume(i, session.Secret, session.Suite)
	return ok, reason == handshake13.Accepted
}

func (s *serverHandshake) now() time.Time {
	if s.config.Time != nil {
		return s.config.Time()
	}
	return time.Now()
}

// newTicket returns a NewSessionTicket message, empty for a client that takes none. ok is false if crypto/tls has to
// answer.
func (s *serverHandshake) newTicket(state *tls.ConnectionState) (message []byte, ok bool) {
	if s.config.SessionTicketsDisabled || !s.hs.WantsTickets() {
		return nil, true
	}
	session, err := handshake13.NewSession(state.CipherSuite, s.now(), s.hs.SessionSecret())
	if err != nil {
		return nil, false
	}
	wrap := s.config.WrapSession
	if wrap == nil {
		wrap = s.user.EncryptTicket
	}
	ticket, err := wrap(*state, session)
	if err != nil || len(ticket) > maxTicket {
		return nil, false
	}
	return handshake13.AppendTicket(make([]byte, 0, len(ticket)+ticketOverhead), ticket), true
}

const (
	maxTicket      = 1<<16 - 1 // bytes (RFC 8446 4.6.1)
	ticketOverhead = 32        // more than the other fields of the message have
)

// connectionState returns the state that callbacks see, and then the engine's users.
func (s *serverHandshake) connectionState() *tls.ConnectionState {
	state := &tls.ConnectionState{
		Version: tls.VersionTLS13, CipherSuite: s.hs.CipherSuite(), CurveID: s.hs.Group(), NegotiatedProtocol: s.hs.Protocol(),
		ServerName: s.name, DidResume: s.hs.Resumed(),
	}
	//lint:ignore SA1019 crypto/tls sets it
	state.NegotiatedProtocolIsMutual = true
	if s.hs.State() == handshake13.Complete {
		setExport(state, s.hs.Exporter())
	}
	return state
}
