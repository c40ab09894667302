package http1

import (
	"github.com/millrace/millrace/semantics"
)

// Message is a message that was received. Its strings are valid until the next one begins.
//
// Fields has neither Host and Content-Length, which are control data, nor the fields of the connection. TE is kept where it
// is "trailers", as in HTTP/2. Protocol is the value of Upgrade where the peer offers, or with 101 takes, another protocol.
type Message struct {
	semantics.Message
	Minor     int    // of the version 1.Minor
	Reason    string // of a response
	Body      Body   // how the content is delimited
	Close     bool   // the sender closes the connection after the message, or after the response to it
	Expect100 bool   // the client waits for 100 (Continue) before it sends content (RFC 9110 10.1.1)
}

// Body selects how the end of content is recognised (RFC 9112 6).
type Body uint8

// Values of Body.
const (
	NoBody     Body = iota
	Length          // by ContentLength
	Chunked         // by the chunked coding
	UntilClose      // by the end of the connection; responses only
)

// String returns a name for logs.
func (b Body) String() string {
	return [...]string{"none", "length", "chunked", "until close"}[b]
}

// reset empties m for the next message.
func (m *Message) reset() { *m = Message{Message: semantics.Message{ContentLength: -1}} }
