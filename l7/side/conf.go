package side

import (
	"strings"
	"time"

	"github.com/millrace/millrace/semantics"
)

// Timeouts of a listener's connections. 0 is none.
type Timeouts struct {
	Handshake time.Duration // of TLS
	Header    time.Duration // from the first byte of a request to the end of its header
	Body      time.Duration // without progress
	Write     time.Duration // without progress
	Idle      time.Duration // between requests
	Drain     time.Duration // of all connections, once the listener is removed
	Tunnel    time.Duration // without a byte in either direction of a WebSocket or of a connection that is passed through
}

// Conf holds the settings of the listener at which a client came in. It changes as the configuration does.
type Conf struct {
	Timeouts *Timeouts
}

// HeaderLimits bound the header of a backend's response. 0 is the default of the machine of the protocol.
type HeaderLimits struct {
	Bytes  int
	Fields int // lines, without pseudo-headers
}

// DrainGrace is the time that a connection without a request is kept once its listener has gone: what its client has sent by the time
// that it knows is still served.
const DrainGrace = 250 * time.Millisecond

const (
	// MaxShared bounds the requests at a time on one connection.
	MaxShared = 128
	// BackWindow bounds the content of a response that waits for its client. The window of the connection is that of all
	// requests together: clients that do not read hold up no other client.
	BackWindow = 128 << 10
)

// Departure is the state of a client's connection that ends.
type Departure uint8

const (
	Serving  Departure = iota
	Warned             // GOAWAY was sent without a last stream: requests that are under way are served
	Refusing           // GOAWAY was sent with the last one
	Parting            // of HTTP/3: the last response is under way
)

// Expects reports whether the client waits for 100 (Continue).
func Expects(fields []semantics.Field) bool {
	for i := range fields {
		if fields[i].Name == "expect" {
			return strings.EqualFold(fields[i].Value, "100-continue")
		}
	}
	return false
}

// TooLarge is the response to a request whose header is above the limit.
var TooLarge = semantics.Message{Status: 431}
