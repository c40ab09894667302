package tls

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
)

// safeSuites are the cipher suites of TLS 1.2 with forward secrecy and authenticated encryption (RFC
// 9325 4.2). A list keeps out static RSA key exchange and 3DES, which GODEBUG could bring back. TLS
// 1.3 has none to choose.
var safeSuites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// SuiteNames returns the names of the cipher suites of TLS 1.2 that servers and clients have, as IANA registers them.
func SuiteNames() (names []string) {
	for _, id := range safeSuites {
		names = append(names, tls.CipherSuiteName(id))
	}
	return names
}

// SuiteByName returns the number of a suite of SuiteNames, 0 for another name.
func SuiteByName(name string) uint16 {
	if i := slices.Index(SuiteNames(), name); i >= 0 {
		return safeSuites[i]
	}
	return 0
}

// ErrConfig reports that options contradict each other.
var ErrConfig = errors.New("tls: bad configuration")

// ClientAuth selects how a server authenticates clients (mutual TLS).
type ClientAuth struct {
	Roots      *Roots      // authorities of clients; required
	Revocation *Revocation // lists; nil checks none
	OCSP       *OCSPCheck  // asks responders; nil asks none
	Optional   bool        // accept clients without a certificate; one that is sent must be good
}

// ServerOptions configure a server. All but Store may be left out.
type ServerOptions struct {
	Store      *Store
	MinVersion uint16      // 0: TLS 1.2, which is the least
	MaxVersion uint16      // 0: TLS 1.3
	Suites     []uint16    // of TLS 1.2, of those of SuiteNames; nil: all of them
	Protocols  []string    // ALPN, the preferred one first; net/http speaks HTTP/2 only if h2 is among them
	ClientAuth *ClientAuth // nil asks for no certificates
	Tickets    *TicketKeys // nil: crypto/tls's own, which other instances do not have
	ECH        *ECHKeys    // nil: no Encrypted ClientHello
	// KeyLog gets the secrets of all connections in the format of NSS, by which Wireshark decrypts
	// them: for tests only.
	KeyLog io.Writer
	// ForClient may return a config for a ClientHello, as GetConfigForClient does; nil stands for
	// the server's own. It gets the same tickets.
	ForClient func(*tls.ClientHelloInfo) (*tls.Config, error)
}

// NewServerConfig returns a config for crypto/tls, net/http and QUIC: TLS 1.2 at least, suites with
// forward secrecy and AEAD only, the key exchanges that crypto/tls offers by default, X25519MLKEM768
// first, and no renegotiation. The config follows what is loaded again behind the options.
func NewServerConfig(o ServerOptions) (*tls.Config, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	base := o.base()
	if o.ClientAuth == nil && o.ForClient == nil {
		return base, nil
	}
	s := &serverChoice{o: o, base: base}
	config := base.Clone()
	config.GetConfigForClient = s.configFor
	if o.ClientAuth != nil {
		o.ClientAuth.require(config)
	}
	if o.Tickets != nil {
		o.Tickets.Attach(config)
	}
	return config, nil
}

func (o *ServerOptions) check() error {
	switch {
	case o.Store == nil:
		return fmt.Errorf("%w: no Store", ErrConfig)
	case o.MinVersion != 0 && (o.MinVersion < tls.VersionTLS12 || o.MinVersion > tls.VersionTLS13):
		return fmt.Errorf("%w: MinVersion %#x; TLS 1.2 is the least (RFC 8996)", ErrConfig, o.MinVersion)
	case o.MaxVersion != 0 && (o.MaxVersion < max(o.MinVersion, tls.VersionTLS12) || o.MaxVersion > tls.VersionTLS13):
		return fmt.Errorf("%w: MaxVersion %#x", ErrConfig, o.MaxVersion)
	case slices.ContainsFunc(o.Suites, func(id uint16) bool { return !slices.Contains(safeSuites, id) }):
		return fmt.Errorf("%w: a cipher suite without forward secrecy or authenticated encryption (RFC 9325 4.2)", ErrConfig)
	case o.ClientAuth != nil && o.ClientAuth.Roots == nil:
		return fmt.Errorf("%w: ClientAuth without Roots", ErrConfig)
	}
	return nil
}

// base returns the config without what depends on the client.
func (o *ServerOptions) base() *tls.Config {
	c := &tls.Config{
		GetCertificate: o.Store.GetCertificate,
		MinVersion:     max(o.MinVersion, tls.VersionTLS12),
		MaxVersion:     o.MaxVersion,
		CipherSuites:   safeSuites,
		NextProtos:     o.Protocols,
		KeyLogWriter:   o.KeyLog,
	}
	if o.Suites != nil {
		c.CipherSuites = o.Suites
	}
	if o.ECH != nil {
		c.GetEncryptedClientHelloKeys = o.ECH.keysFor
	}
	if o.Tickets != nil {
		o.Tickets.Attach(c)
	}
	return c
}

// require makes a config demand client certificates of the authorities as they are now.
func (a *ClientAuth) require(c *tls.Config) *rootSet {
	set := a.Roots.current.Load()
	c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, set.pool
	if a.Optional {
		c.ClientAuth = tls.VerifyClientCertIfGiven
	}
	if a.Revocation != nil || a.OCSP != nil {
		c.VerifyConnection = a.verify
	}
	return set
}

// verify is VerifyConnection: lists come first, which need no request.
func (a *ClientAuth) verify(cs tls.ConnectionState) error {
	if a.Revocation != nil {
		if err := a.Revocation.verify(cs); err != nil {
			return err
		}
	}
	if a.OCSP != nil {
		return a.OCSP.verify(cs)
	}
	return nil
}

// serverChoice makes the config that follows the authorities.
type serverChoice struct {
	o    ServerOptions
	base *tls.Config
	made atomic.Pointer[madeConfig]
}

type madeConfig struct {
	roots  *rootSet
	config *tls.Config
}

// configFor is GetConfigForClient.
func (s *serverChoice) configFor(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	if s.o.ForClient != nil {
		if c, err := s.o.ForClient(hello); c != nil || err != nil {
			return c, err
		}
	}
	return s.current(s.base), nil
}

// current returns the config with the authorities of now.
func (s *serverChoice) current(base *tls.Config) *tls.Config {
	if s.o.ClientAuth == nil {
		return base
	}
	if m := s.made.Load(); m != nil && m.roots == s.o.ClientAuth.Roots.current.Load() {
		return m.config
	}
	c := base.Clone()
	s.made.Store(&madeConfig{s.o.ClientAuth.require(c), c})
	return c
}

// ClientOptions configure a client. The zero value trusts the system's authorities.
type ClientOptions struct {
	ServerName   string // needed unless the dialer sets it
	Roots        *Roots // nil: those of the system, as they are
	Revocation   *Revocation
	Certificates *Store   // certificates of the client; nil: none
	Protocols    []string // ALPN, the preferred one first
	MinVersion   uint16   // 0: TLS 1.2, which is the least
	// ECHConfigList turns Encrypted ClientHello on, for servers that publish it in DNS (RFC 9848).
	ECHConfigList []byte
	Sessions      tls.ClientSessionCache // nil resumes no sessions
	KeyLog        io.Writer              // see ServerOptions
}

// NewClientConfig returns a config for a client, with the defaults of NewServerConfig. It checks
// stapled OCSP responses (CheckStaple), and of certificates that demand one that there is one.
func NewClientConfig(o ClientOptions) (*tls.Config, error) {
	if o.MinVersion != 0 && (o.MinVersion < tls.VersionTLS12 || o.MinVersion > tls.VersionTLS13) {
		return nil, fmt.Errorf("%w: MinVersion %#x; TLS 1.2 is the least (RFC 8996)", ErrConfig, o.MinVersion)
	}
	c := &tls.Config{
		ServerName:                     o.ServerName,
		MinVersion:                     max(o.MinVersion, tls.VersionTLS12),
		CipherSuites:                   safeSuites,
		NextProtos:                     o.Protocols,
		EncryptedClientHelloConfigList: o.ECHConfigList,
		ClientSessionCache:             o.Sessions,
		KeyLogWriter:                   o.KeyLog,
		Renegotiation:                  tls.RenegotiateNever,
		VerifyConnection: func(cs tls.ConnectionState) error {
			if o.Revocation != nil {
				if err := o.Revocation.verify(cs); err != nil {
					return err
				}
			}
			return CheckStaple(cs)
		},
	}
	if o.ECHConfigList != nil {
		c.MinVersion = tls.VersionTLS13 // RFC 9849 6.1: a client that offers ECH offers no less
	}
	if o.Roots != nil {
		c.RootCAs = o.Roots.Pool()
	}
	if o.Certificates != nil {
		c.GetClientCertificate = o.Certificates.clientCertificate
	}
	return c, nil
}

// clientCertificate returns the first certificate of the store that the server accepts. Without
// one, the client sends an empty list, and the server decides.
func (s *Store) clientCertificate(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	for _, id := range s.Status() {
		s.mu.Lock()
		e := s.entries[id.ID]
		s.mu.Unlock()
		if e != nil && r.SupportsCertificate(e.cert) == nil {
			return e.cert, nil
		}
	}
	return &tls.Certificate{}, nil
}
