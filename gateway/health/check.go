package health

import (
	"crypto/tls"
	"net/netip"
	"time"
)

// Type is a kind of probe.
type Type string

// The values of Type.
const (
	TypeTCP     Type = "tcp"     // a connection is made, and a conversation had if there is one
	TypeHTTP    Type = "http"    // a request is answered with an expected status
	TypeHTTPS   Type = "https"   // the same by TLS
	TypeGRPC    Type = "grpc"    // gRPC's health protocol answers SERVING
	TypeGRPCS   Type = "grpcs"   // the same by TLS
	TypeUDP     Type = "udp"     // a datagram is answered, or at least not refused
	TypeCommand Type = "command" // a program exits with 0
)

// Types are all types, in the order of the documentation.
var Types = []Type{TypeTCP, TypeHTTP, TypeHTTPS, TypeGRPC, TypeGRPCS, TypeUDP, TypeCommand}

// Check configures how backends are probed. New sets the defaults, Validate returns what is wrong with
// it. It is not changed once a Checker has it.
type Check struct {
	Type     Type          // key "type", default "tcp"
	Interval time.Duration // key "interval": between the starts of two probes, +-10 %; default 2s
	Timeout  time.Duration // key "timeout": of a whole probe; default 1s, at most the interval
	Rise     int           // key "rise": successes in a row that make a backend healthy, default 2
	Fall     int           // key "fall": failures in a row that make it unhealthy, default 3
	Port     uint16        // key "port"; 0 is the backend's own
	Device   string        // key "device": sockets are bound to it (SO_BINDTODEVICE); "" leaves it to the routes
	HTTP     HTTP          // key "http", of types http and https
	GRPC     GRPC          // key "grpc", of types grpc and grpcs
	UDP      UDP           // key "udp", of type udp
	TCP      []Step        // key "tcp", of type tcp: a conversation; none makes a connection and closes it
	Command  []string      // key "command", of type command: the program by its absolute path, and its arguments
	Conn     Conn          // no key: how the pool that is probed connects to its backends
}

// Conn holds what the connections of a pool to its backends begin with. Probes of the backends' own port begin in the same way: a
// backend that takes no other connection would be down for the probe alone. The zero value is HTTP/1.1 without TLS.
type Conn struct {
	Preamble string      // is sent before anything else: a header of the PROXY protocol without addresses
	HTTP2    bool        // requests have HTTP/2: with TLS by ALPN, otherwise by prior knowledge (RFC 9113 3.3)
	TLS      *tls.Config // of types https and grpcs, where the check has no key for it; nil if the pool has no TLS
	FastCGI  string      // requests are of scripts below this folder; "" speaks HTTP
}

// HTTP configures the request of types http and https, and the answers that they accept. Redirects are answers like
// others: they are not followed.
type HTTP struct {
	Method string        // key "method": GET (default), HEAD, OPTIONS or POST, without a body
	Path   string        // key "path", with a query if need be; default "/"
	Host   string        // key "host": the Host header, and the default of ServerName; "" is the target
	Status []StatusRange // key "status": codes that are a success; default 200-399
	Body   string        // key "body": has to occur in the first 64 KiB of the answer's body; "" is anything

	// The rest is of https. Without Insecure the certificate has to be valid for ServerName.
	ServerName string // key "server_name": sent as SNI and compared with the certificate; "" is the host, or else the target's address (never sent)
	Insecure   bool   // key "insecure": any certificate will do
	CAFile     string // key "ca_file": PEM file of authorities; "" is those of the system
	CA         string // its contents: Validate reads them
}

// UDP configures the datagram of type udp, and the answers that it accepts. ICMP errors (port, host or network
// unreachable) are failures in any case.
type UDP struct {
	Send    []byte  // key "send", or "send_hex"; required, at most 1200 bytes
	Expect  []byte  // key "expect", or "expect_hex": has to occur in the first 4 KiB of the answer; empty is any answer
	Silence Silence // key "silence": what no answer within the timeout is, default "failure"
}

// Silence defines what it means that a datagram got no answer.
type Silence string

// The values of Silence. Success is for protocols that do not answer: then only ICMP errors are
// failures, and every successful probe takes the whole timeout.
const (
	SilenceFailure Silence = "failure"
	SilenceSuccess Silence = "success"
)

// New returns a check with the defaults.
func New() *Check {
	return &Check{
		Type: TypeTCP, Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3,
		HTTP: HTTP{Method: "GET", Path: "/", Status: []StatusRange{{200, 399}}},
		UDP:  UDP{Silence: SilenceFailure},
	}
}

// Target returns where a backend at the given address is probed.
func (c *Check) Target(backend netip.AddrPort) netip.AddrPort {
	if c.Port != 0 {
		return netip.AddrPortFrom(backend.Addr(), c.Port)
	}
	return backend
}

// Network returns the transport protocol of probes, "tcp" or "udp", or "" when only the command
// knows.
func (c *Check) Network() string {
	switch c.Type {
	case TypeUDP:
		return "udp"
	case TypeCommand:
		return ""
	}
	return "tcp"
}
