package http1

import (
	"github.com/millrace/millrace/semantics"
)

// Role is which end of a connection a Machine is.
type Role uint8

// Values of Role.
const (
	RoleClient Role = iota
	RoleServer
)

// Options configures a Machine. The zero value is valid.
type Options struct {
	// Scheme is that of requests whose target has none: "https" where the connection has TLS. Empty is
	// "http".
	Scheme string
	// MaxHead bounds start line and header section in bytes; 0 is DefaultMaxHead.
	MaxHead int
	// MaxTarget bounds the request line in bytes; 0 is DefaultMaxTarget.
	MaxTarget int
	// MaxFields bounds the field lines of a header or trailer section; 0 is DefaultMaxFields.
	MaxFields int
	// MaxTrailers bounds the trailer section in bytes; 0 is DefaultMaxTrailers.
	MaxTrailers int
	// MaxExtensions bounds the chunk extensions of a message in bytes; 0 is DefaultMaxExtensions.
	// They are discarded.
	MaxExtensions int
	// KeepCase keeps the spelling of field names. A server has it in Message.Spellings, and a client writes requests with that:
	// names are the same in every case (RFC 9110 5.1), but old servers compare bytes.
	KeepCase bool
	// UpgradeContent permits content of requests that offer another protocol than WebSocket. It comes before the change (RFC 9110
	// 7.8). Without it such requests are refused.
	UpgradeContent bool
}

// Defaults of Options.
const (
	DefaultMaxHead       = 32 << 10
	DefaultMaxTarget     = 8 << 10
	DefaultMaxFields     = 100
	DefaultMaxTrailers   = 8 << 10
	DefaultMaxExtensions = 1 << 10
)

// withDefaults fills in defaults.
func (o Options) withDefaults() Options {
	fill := func(v *int, zero int) {
		if *v == 0 {
			*v = zero
		}
	}
	if o.Scheme == "" {
		o.Scheme = "http"
	}
	fill(&o.MaxHead, DefaultMaxHead)
	fill(&o.MaxTarget, DefaultMaxTarget)
	fill(&o.MaxFields, DefaultMaxFields)
	fill(&o.MaxTrailers, DefaultMaxTrailers)
	fill(&o.MaxExtensions, DefaultMaxExtensions)
	return o
}

// EventKind is the kind of an Event.
type EventKind uint8

// Values of EventKind.
const (
	// NeedInput ends the events: there is nothing to report until there is more input, or, at a server,
	// until the request that was received is answered.
	NeedInput EventKind = iota
	// Headers is the header of a message: Machine.Message has it. A response with a status below 200,
	// other than 101, is followed by another.
	Headers
	// Data is a part of the content, or of what follows CONNECT or an upgrade.
	Data
	// Trailers come after the content: Machine.Trailers has them.
	Trailers
	// End is the end of the message, or of what follows CONNECT or an upgrade.
	End
)

// Event is a report of a machine on its input.
type Event struct {
	Kind    EventKind
	Payload []byte // of Data: a part of the input
}

// state names the next part of its input that a machine expects.
type state uint8

const (
	inHead       state = iota // start line and fields
	inContent                 // left bytes of it
	untilClose                // all of the input
	tunnel                    // bytes of another protocol
	atSize                    // the size of a chunk
	inExtensions              // what follows the size, up to CR
	atSizeLF                  // the LF after it
	inChunk                   // left bytes of a chunk
	atChunkCR                 // the CR after a chunk
	atChunkLF                 // the LF
	inTrailers                // field lines after the last chunk
	ending                    // nothing: the message is at its end
	complete                  // the message has ended, and no other may begin yet
)

// Machine is one end of a connection. One goroutine at a time uses it.
type Machine struct {
	options Options
	role    Role
	state   state

	message  Message
	fields   []semantics.Field
	trailers []semantics.Field

	// buf is the header, and behind it the trailers. The strings of messages point into it. Where it grows for the
	// trailers, those of the header keep the array that it was.
	buf     []byte
	begins  int   // where the section that is collected begins
	scanned int   // up to where line ends were sought
	lines   []int // where its lines end: offsets of the LFs

	keepsHead bool
	head      []byte // as it came; empty where it was not kept

	left       uint64 // bytes of the content or chunk; the size of a chunk as far as it is read
	digits     int    // of that size
	extensions int    // bytes of extensions of the message

	inExtension extensionState

	request request
	sending sending
	closing bool // no request follows the one in progress
	ended   bool // the input has ended
	err     error
}

// request is the request in progress: one that a client has sent, or a server has received, and whose response is not
// complete.
type request struct {
	open    bool
	head    bool // its method is HEAD,
	connect bool // or CONNECT
	upgrade bool // it offers another protocol
	old     bool // its client has HTTP/1.0,
	keep    bool // and asks for the connection to be kept
}

// NewMachine returns an end of a new connection.
func NewMachine(role Role, o Options) *Machine {
	m := &Machine{options: o.withDefaults(), role: role}
	m.Reset()
	return m
}

// Reset makes m an end of another connection, with the same role and options. It keeps buffers.
func (m *Machine) Reset() {
	*m = Machine{
		options: m.options, role: m.role,
		buf: m.buf[:0], lines: m.lines[:0], fields: m.fields[:0], trailers: m.trailers[:0], head: m.head[:0],
	}
	if m.message.reset(); m.role == RoleClient {
		m.state = complete
	}
}

// Compact releases the buffers of a connection that is idle. The next message allocates them again.
func (m *Machine) Compact() {
	if m.Idle() {
		m.buf, m.lines, m.fields, m.trailers, m.head = nil, nil, nil, nil, nil
		m.message.reset()
	}
}

// Message returns the message that the last event Headers reported. It is valid until the next one begins.
func (m *Machine) Message() *Message { return &m.message }

// Trailers returns the fields of the event Trailers, none if there was none. They are valid as long as the message.
func (m *Machine) Trailers() []semantics.Field { return m.trailers }

// Idle reports whether no message is in progress, in either direction.
func (m *Machine) Idle() bool {
	return !m.request.open && m.sending.body == NoBody && (m.state == complete || m.state == inHead && len(m.buf) == 0)
}

// KeepAlive reports whether the connection may carry another request after the one in progress (RFC 9112 9.3).
func (m *Machine) KeepAlive() bool {
	return !m.closing && !m.ended && m.err == nil && m.state != tunnel && m.state != untilClose
}

// CloseAfter makes the request in progress, or else the next, the last on the connection.
func (m *Machine) CloseAfter() { m.closing = true }

// Tunnel reports whether the input is another protocol's, after CONNECT or 101. What is sent then needs no Append method.
func (m *Machine) Tunnel() bool { return m.state == tunnel }
