package config

import (
	"net/netip"
	"time"
)

// Stack defines whose connections those of listeners are.
type Stack string

// The values of Stack.
const (
	StackKernel  Stack = "kernel"  // the kernel's: sockets
	StackDevices Stack = "devices" // the userspace stack's, on the devices of the file
)

// LoopsAuto is the Config.ProxyLoops that the machine has to say: a loop for each CPU.
const LoopsAuto = 0

// Network configures how the userspace stack reaches others, beside the networks of Device.Addresses.
type Network struct {
	Routes []NetworkRoute // key "routes"
}

// NetworkRoute is a route to a network by way of a neighbour, or on a link.
type NetworkRoute struct {
	To     netip.Prefix // key "to", required; "default" stands for all of Via's family
	Via    netip.Addr   // key "via"; zero is on link
	Device string       // key "device"; "" is the device with Via on its network, or the only one
}

// Listener accepts connections and makes requests or streams of them.
type Listener struct {
	Name           string           // key "name", required and unique: the label of logs and metrics
	Addresses      []netip.AddrPort // key "address", required: ip:port, or a list of them
	Protocol       ListenerProtocol // key "protocol", required: "HTTP", "HTTPS", "TLS" or "TCP"
	Versions       []HTTPVersion    // key "versions", of HTTP and HTTPS: default 1.1 with HTTP, 1.1 and 2 with HTTPS
	AltSvc         time.Duration    // key "alt_svc": how long clients may remember that there is HTTP/3 (RFC 7838 3.1), default 24h; 0 does not announce it
	EarlyData      bool             // key "early_data", with HTTP/3: serve safe requests that come before the handshake is complete, and may be replays (RFC 8470), default false
	ProxyProtocol  []netip.Prefix   // key "proxy_protocol.from": peers whose connections begin with a PROXY header, version 1 or 2; others have none
	ProxyDatagrams bool             // key "proxy_protocol.http3": each datagram of HTTP/3 of these peers begins with one, version 2, default false
	Forwarded      Forwarded        // key "forwarded", of HTTP and HTTPS
	Compression    *Compression     // key "compression", of HTTP and HTTPS: of responses; absent: none
	RequestID      string           // key "request_id", of HTTP and HTTPS: the field, in lower case, that has the ID of each request; default none
	Colliding      CollidingFields  // key "colliding_fields", of HTTP and HTTPS: "drop" (default), "reject" or "allow"
	TLS            *ListenerTLS     // key "tls": required with HTTPS, nil otherwise
	Timeouts       ListenerTimeouts // key "timeouts"
	Limits         ListenerLimits   // key "limits"
	Sources        Sources          // key "sources": clients that are served
	HSTS           *HSTS            // key "hsts", of HTTPS; nil is none
	ErrorPages     []ErrorPage      // key "error_pages", of HTTP and HTTPS
	RateLimits     []string         // key "rate_limits", of HTTP and HTTPS: names of limits that count all requests
	Announce       *Attributes      // key "announce"; nil: the addresses are not announced by BGP
	WAF            *WAF             // key "waf", of HTTP and HTTPS: rules that requests are evaluated by; nil is none
}

// CollidingFields selects the handling of fields of clients whose names differ from those that the gateway sets, removes or reads only
// where both have no letter or digit, as X_Real_IP and X-Real-IP: backends that read fields as variables cannot tell them apart.
type CollidingFields string

// The values of CollidingFields.
const (
	CollidingDrop   CollidingFields = "drop"   // backends do not get the field
	CollidingReject CollidingFields = "reject" // the request gets 400
	CollidingAllow  CollidingFields = "allow"  // backends get the field
)

// ListenerProtocol is the protocol of a listener.
type ListenerProtocol string

// The values of ListenerProtocol.
const (
	ListenerHTTP  ListenerProtocol = "HTTP"
	ListenerHTTPS ListenerProtocol = "HTTPS" // TLS ends here
	ListenerPass  ListenerProtocol = "TLS"   // passed through; the server name of the ClientHello selects a TLSRoute
	ListenerTCP   ListenerProtocol = "TCP"   // passed through
)

// IsHTTP reports whether routes of requests apply.
func (p ListenerProtocol) IsHTTP() bool { return p == ListenerHTTP || p == ListenerHTTPS }

// HTTPVersion is a version of HTTP.
type HTTPVersion string

// The values of HTTPVersion.
const (
	HTTP1 HTTPVersion = "1.1" // and 1.0
	HTTP2 HTTPVersion = "2"   // by ALPN; without TLS by prior knowledge (RFC 9113 3.3)
	HTTP3 HTTPVersion = "3"   // on the UDP ports of the same addresses
)

// Forwarded defines what backends learn of the client.
type Forwarded struct {
	Trusted []netip.Prefix // key "trusted": peers whose fields are kept and continued; those of others are replaced
	Style   ForwardedStyle // key "style": which fields: "x-forwarded" (default), "forwarded" or "none"
	Via     bool           // key "via": requests pass with the gateway's name in Via (RFC 9110 7.6.3), default false: nginx with gzip_proxied off, its default, compresses nothing for requests that have the field
}

// ForwardedStyle is the form in which backends learn of the client.
type ForwardedStyle string

// The values of ForwardedStyle.
const (
	ForwardedX    ForwardedStyle = "x-forwarded" // X-Forwarded-For, -Proto and -Host
	ForwardedRFC  ForwardedStyle = "forwarded"   // Forwarded (RFC 7239)
	ForwardedNone ForwardedStyle = "none"        // no field; those that arrive are removed unless they come from a trusted peer
)

// Certificate names the PEM files of a certificate and its key, relative to the configuration file's folder.
type Certificate struct {
	Cert     string // key "cert", required: the certificate, followed by its chain
	Key      string // key "key": the private key; "" (default) is in Cert
	Default  bool   // key "default": answers clients that ask for no name, or for an unknown one; the only certificate of a listener does
	OCSPFile string // key "ocsp_file", of listeners: an OCSP response in DER, which is sent with the certificate; "" (default) is none
}

// ListenerTLS configures TLS of a listener.
type ListenerTLS struct {
	Certificates  []Certificate // key "certificates": each answers for the names in it; they or acme are required
	ACME          *ACME         // key "acme": certificates that an authority issues; absent: none
	MinVersion    TLSVersion    // key "min_version": "1.2" (default) or "1.3"
	MaxVersion    TLSVersion    // key "max_version": "1.2" or "1.3" (default)
	Ciphers       []string      // key "ciphers", of TLS 1.2: suites in the order of preference of crypto/tls; absent: all that are safe
	OCSP          OCSPMode      // key "ocsp": "none" (default), or "fetch" responses from the responders of certificates
	ClientAuth    *ClientAuth   // key "client_auth"; absent: clients are not asked for a certificate
	Misdirected   Misdirected   // key "misdirected": which requests for another host than the connection was opened for are answered 421: "certificate" (default), "server_name" or "off"
	TicketKeyFile string        // key "ticket_key_file": secrets that gateways share, so that each resumes sessions of the others; "" (default) is none
}

// Misdirected defines when a request is for a host that its connection does not serve (RFC 9110 15.5.20).
type Misdirected string

// The values of Misdirected.
const (
	MisdirectedCertificate Misdirected = "certificate" // the certificate of the connection is not for the host
	MisdirectedServerName  Misdirected = "server_name" // the host is not the server name that TLS was opened with
	MisdirectedOff         Misdirected = "off"
)

// OCSPMode selects where OCSP responses come from that are sent with certificates (stapling).
type OCSPMode string

// The values of OCSPMode.
const (
	OCSPNone  OCSPMode = "none"  // from the files of certificates that name one
	OCSPFetch OCSPMode = "fetch" // from the responders that certificates name
)

// TLSVersion is a version of TLS.
type TLSVersion string

// The values of TLSVersion.
const (
	TLS12 TLSVersion = "1.2"
	TLS13 TLSVersion = "1.3"
)

// ClientAuth is mutual TLS. Names of files are relative to the configuration file's folder.
type ClientAuth struct {
	CAFiles  []string // key "ca_file", required: PEM files of the authorities of clients
	CRLFiles []string // key "crl_file": revocation lists
	Optional bool     // key "optional": also accept clients without a certificate

	Forward      ForwardCert // key "forward": how backends learn of a client's certificate: "none" (default), "client-cert" or "x-forwarded-client-cert"
	ForwardChain bool        // key "forward_chain": also of the chain that it was verified by
}

// ListenerTimeouts are time-outs towards clients. 0 is none.
type ListenerTimeouts struct {
	Handshake     time.Duration // key "handshake": of the PROXY header and of TLS, default 10s
	RequestHeader time.Duration // key "request_header": from the first byte of a request to the end of its header, default 15s
	RequestBody   time.Duration // key "request_body": without a byte of the content, default 60s
	Write         time.Duration // key "write": in which the client takes nothing of what is sent, default 60s
	Idle          time.Duration // key "idle": between requests, default 75s
	Stream        time.Duration // key "stream": without a byte in either direction of WebSocket, CONNECT, TLS and TCP, default 10m
	Drain         time.Duration // key "drain": how long a listener that is removed, or a gateway that stops, waits for requests, default 30s
}

// ListenerLimits bound what clients may ask for. 0 is no limit.
type ListenerLimits struct {
	Connections        int   // key "connections": open ones, of all loops together, default 0
	ConnectionRequests int   // key "connection_requests": requests of one connection, after which it is closed; default 0
	Streams            int   // key "streams": requests of one connection at a time with HTTP/2 and 3, default 128
	TargetBytes        int   // key "target_bytes": of the target of a request, with HTTP/1.1 of its whole first line; default 8192
	HeaderBytes        int   // key "header_bytes": of the header of a request, default 32768
	HeaderFields       int   // key "header_fields": lines of the header of a request, all of Cookie as one; default 100
	BodyBytes          int64 // key "body_bytes": of the content of a request, default 0
}

// Limits of the sections on listeners, routes and pools.
const (
	maxListeners    = 1024
	maxRoutes       = 65536
	maxRules        = 1024 // of one route
	maxMatches      = 64   // of one rule
	maxConditions   = 32   // of one match, of each kind
	maxFilters      = 16   // of one rule
	maxEdits        = 64   // fields that a filter sets, adds or removes, of each kind
	maxRefs         = 64   // pools of one rule
	maxHostnames    = 1024 // of one route
	maxPools        = 65536
	maxCertificates = 16384
	maxBodyBytes    = 1 << 50
	maxFixedBody    = 64 << 10
)

func newListener() Listener {
	return Listener{
		AltSvc:    24 * time.Hour,
		Colliding: CollidingDrop,
		Forwarded: Forwarded{Style: ForwardedX},
		Sources:   Sources{Default: "allow"},
		Timeouts: ListenerTimeouts{
			Handshake: 10 * time.Second, RequestHeader: 15 * time.Second, RequestBody: time.Minute, Write: time.Minute,
			Idle: 75 * time.Second, Stream: 10 * time.Minute, Drain: 30 * time.Second,
		},
		Limits: ListenerLimits{Streams: 128, TargetBytes: 8 << 10, HeaderBytes: 32 << 10, HeaderFields: 100},
	}
}

func newListenerTLS() *ListenerTLS {
	return &ListenerTLS{MinVersion: TLS12, MaxVersion: TLS13, OCSP: OCSPNone, Misdirected: MisdirectedCertificate}
}

func newClientAuth() *ClientAuth { return &ClientAuth{Forward: ForwardCertNone} }

// ForwardCert is the form in which backends learn of a client's certificate.
type ForwardCert string

// The values of ForwardCert. What clients send under these names is removed with all of them, unless it comes from a peer
// that Forwarded trusts.
const (
	ForwardCertNone ForwardCert = "none"
	ForwardCertRFC  ForwardCert = "client-cert"             // Client-Cert and Client-Cert-Chain (RFC 9440)
	ForwardCertX    ForwardCert = "x-forwarded-client-cert" // as Envoy writes it
)

// HTTP3 reports whether the listener speaks HTTP/3.
func (l *Listener) HTTP3() bool { return l.speaks(HTTP3) }

// HTTP2 reports whether the listener speaks HTTP/2.
func (l *Listener) HTTP2() bool { return l.speaks(HTTP2) }

func (l *Listener) speaks(v HTTPVersion) bool {
	for _, has := range l.Versions {
		if has == v {
			return true
		}
	}
	return false
}
