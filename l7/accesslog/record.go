package accesslog

import (
	"net/netip"
	"time"

	"github.com/millrace/millrace/semantics"
)

// Record is a request that has ended, a connection that was passed through, or input that was refused, for an access
// log. Its strings and fields are valid during the call that it is given to.
type Record struct {
	Began      time.Duration  // how long ago the header of the request had arrived: the time of a slow client before it is not the server's
	Client     netip.AddrPort // the other end of the connection, or the one that its PROXY header names
	Forwarded  netip.Addr     // the client that a trusted peer names (X-Forwarded-For, Forwarded); not valid where none does
	Listener   string
	Route      string // "" where none matched
	Rule       string
	Pool       string // "" where none was chosen
	Backend    string // the one that answered, or the last that failed
	Protocol   string // of the client: "HTTP/1.1", "HTTP/2", "HTTP/3"; "TCP" or "TLS" if it was passed through
	Method     string
	Host, Path string // the path with its query, as the client sent it; of TLS that was passed through the server name
	Status     int
	Error      string // of Proxy-Status (RFC 9209 2.3), where the gateway answered for a backend
	Reason     string // of input that was refused before it was a request: a Refusal, or the error of a handshake; of a request that a Guard has refused
	TraceID    string // where the request has spans
	RequestID  string // where the listener has a field for it, or a variable has asked for it
	User       string // whom credentials of the request name, where its rule asks for some
	Cache      string // what a cache has done, where the rule has one: the name of a cache.Count
	Attempts   int
	BytesIn    uint64
	BytesOut   uint64

	Fields      []semantics.Field // of the request's header
	ServerName  string            // of TLS
	JA4         string            // where the listener reads it
	TLSVersion  uint16            // as in crypto/tls, 0 is none
	CipherSuite uint16            // the same
	// The phases of a request that reached a backend: until its last attempt began, from there to the header of the response (0: none
	// came), and the rest. Their sum is Began.
	Waited, Answered time.Duration
}

// Failed reports whether the record is of what went wrong: no response, a server's error, or input that was refused.
func (r *Record) Failed() bool {
	return r.Status >= 500 || r.Error != "" || r.Reason != "" || r.Status == 0 && r.Method != ""
}

// Address returns the client's address: the one that a trusted peer names, or else that of the connection.
func (r *Record) Address() netip.Addr {
	if r.Forwarded.IsValid() {
		return r.Forwarded
	}
	return r.Client.Addr().Unmap().WithZone("")
}

// field returns the value of a field of the request's header, the first of several.
func (r *Record) field(name string) string {
	for i := range r.Fields {
		if r.Fields[i].Name == name {
			return r.Fields[i].Value
		}
	}
	return ""
}
