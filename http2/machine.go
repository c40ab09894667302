package http2

import (
	"github.com/millrace/millrace/http2/hpack"
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
	// HeaderTable is the dynamic table that the peer may use, in bytes; 0 is hpack.DefaultCapacity, a
	// negative number is none.
	HeaderTable int
	// MaxStreams bounds the requests at a time, at a server; 0 is DefaultMaxStreams.
	MaxStreams int
	// Window bounds the content of a stream that has not been consumed, in bytes; 0 is DefaultWindow,
	// and less than 65535 is 65535, which a peer may send before it has seen any settings.
	Window int
	// ConnWindow bounds the same of all streams together; 0 is DefaultConnWindow.
	ConnWindow int
	// MaxFieldSection bounds the field sections that are received, in bytes; 0 is DefaultFieldSection.
	MaxFieldSection int
	// MaxFields bounds their field lines, as semantics.Lines counts them; 0 is no bound but that of the size.
	MaxFields int
	// ExtendedConnect permits CONNECT with :protocol, at a server (RFC 8441).
	ExtendedConnect bool
	// MaxResets bounds the requests that a client resets, or has reset by errors of its own, beyond those that it lets finish;
	// 0 is DefaultMaxResets. It is what a rapid reset meets.
	MaxResets int
	// MaxIdleFrames bounds the frames without effect beyond 16 for each message and what Allow adds;
	// 0 is DefaultMaxIdleFrames.
	MaxIdleFrames int
}

// Defaults of Options.
const (
	DefaultMaxStreams    = 128
	DefaultWindow        = 256 << 10
	DefaultConnWindow    = 1 << 20
	DefaultFieldSection  = 64 << 10
	DefaultMaxResets     = 200
	DefaultMaxIdleFrames = 10000
)

// maxUnread bounds the answers to frames, such as PING, that the peer does not read, in bytes.
const maxUnread = 64 << 10

// withDefaults fills in defaults; negative numbers become none.
func (o Options) withDefaults() Options {
	fill := func(v *int, zero int) {
		if *v == 0 {
			*v = zero
		}
		*v = max(*v, 0)
	}
	fill(&o.HeaderTable, hpack.DefaultCapacity)
	fill(&o.MaxStreams, DefaultMaxStreams)
	fill(&o.Window, DefaultWindow)
	fill(&o.ConnWindow, DefaultConnWindow)
	fill(&o.MaxFieldSection, DefaultFieldSection)
	fill(&o.MaxResets, DefaultMaxResets)
	fill(&o.MaxIdleFrames, DefaultMaxIdleFrames)
	o.Window, o.ConnWindow = min(max(o.Window, defaultWindow), maxWindow), min(max(o.ConnWindow, defaultWindow), maxWindow)
	return o
}

// EventKind is the kind of an Event.
type EventKind uint8

// Values of EventKind.
const (
	// NeedInput ends the events: there is no more to report until there is more input.
	NeedInput EventKind = iota
	// Headers is the header of a message: Stream.Message has it. A response with a status below 200 is
	// followed by another.
	Headers
	// TooLarge is the header of a request above MaxFieldSection or MaxFields, in its place. A server should answer
	// 431 (RFC 6585 5).
	TooLarge
	// Data is a part of the content. The driver calls Consumed when it has used it.
	Data
	// Trailers come after the content: Stream.Trailers has them.
	Trailers
	// End is the end of the message.
	End
	// Failed is the end of a stream by an error, in Err, or by the peer, with its Code and no Err.
	Failed
	// Window reports that more content can be sent on Stream, or, if Stream is nil, on all.
	Window
	// PeerSettings reports that Machine.Peer has new settings.
	PeerSettings
	// GoAway reports that the peer takes no more requests. Those on streams above Last were not processed,
	// and may be sent again on another connection (RFC 9113 6.8).
	GoAway
	// Pong is the answer to Ping, with its data.
	Pong
)

// Event is a report of a machine on its input.
type Event struct {
	Kind    EventKind
	Stream  *Stream
	Payload []byte // of Data and Pong: a part of the input
	Code    ErrorCode
	Err     error
	Last    uint32
}

// state names the next part of its input that a machine expects.
type state uint8

const (
	atPreface   state = iota
	atHeader          // of a frame
	inPayload         // of any frame but DATA, which is taken as a whole
	atPadLength       // of DATA
	inData
	inPadding
	atEnd // nothing: the stream of the frame ends
)

// Machine is one end of a connection. One goroutine at a time uses it.
type Machine struct {
	options Options
	role    Role
	state   state
	peer    Settings

	held  int // bytes of the preface, or in part
	part  [frameHeaderLen]byte
	frame header
	left  int // bytes of its payload
	pad   int // bytes of padding among them
	buf   []byte

	block    []byte       // of a field block that is not complete
	blockOf  uint32       // its stream; 0 is none
	blockEnd bool         // it ends the stream
	current  *Stream      // of the frame
	refusal  *StreamError // of its field block
	fields   []byte       // scratch of field blocks that are sent
	decoder  *hpack.Decoder
	section  hpack.Section // of field blocks that are decoded only for the table

	streams map[uint32]*Stream
	free    []*Stream
	lastID  uint32 // the largest that the peer has opened
	nextID  uint32 // the next that this end opens

	resetIDs  [32]uint32
	resetNext int

	sendWindow, recvWindow, credit int64

	control    []byte // frames to be sent
	hasPeer    bool   // the peer's settings have arrived
	goneAway   bool   // GOAWAY was sent: no new streams
	accepted   uint32 // the last stream of that GOAWAY
	peerGone   bool   // GOAWAY has arrived
	resets     int    // of requests by the client
	finished   int    // streams that ended by themselves
	malformed  uint64 // requests that no event has reported
	idleFrames int
	err        error
}

// NewMachine returns an end of a new connection. What AppendControl returns first is its preface.
func NewMachine(role Role, o Options) *Machine {
	m := &Machine{
		options: o.withDefaults(), role: role, peer: initialSettings(), streams: map[uint32]*Stream{}, nextID: 1,
		sendWindow: defaultWindow, accepted: maxStreamID,
	}
	m.recvWindow = int64(m.options.ConnWindow)
	m.decoder = hpack.NewDecoder(uint64(m.options.HeaderTable), uint64(m.options.MaxFieldSection))
	m.decoder.MaxLines = max(m.options.MaxFields, 0)
	if role == RoleClient {
		m.control, m.state = append(m.control, Preface...), atHeader
	}
	m.control = m.appendSettings(m.control)
	return m
}

// Peer returns what the peer permits. It changes with the event PeerSettings.
func (m *Machine) Peer() Settings { return m.peer }

// Streams returns the number of streams that are open.
func (m *Machine) Streams() int { return len(m.streams) }

// Malformed returns how many requests were refused as malformed, at a server. There is no event for them.
func (m *Machine) Malformed() uint64 { return m.malformed }

// InHeader reports whether a field section has begun and is not complete. Nothing else can be received until it is (RFC 9113
// 4.3), so that a driver bounds the time that it takes.
func (m *Machine) InHeader() bool {
	return m.blockOf != 0 || m.state == inPayload && m.frame.kind == frameHeaders
}

// Allow adds to the frames without effect that are permitted. A driver calls it as time passes, so that the keep-alives of a
// connection that lives long do not end it.
func (m *Machine) Allow(n int) { m.idleFrames = max(m.idleFrames-n, 0) }

// idle counts a frame without effect.
func (m *Machine) idle() error {
	if m.idleFrames++; m.idleFrames > m.options.MaxIdleFrames {
		return errIdleFrames
	}
	return nil
}

// EndFollows reports whether the message whose header has just been reported has no content: the event End follows at once.
func (m *Machine) EndFollows(s *Stream) bool { return m.state == atEnd && m.current == s }

// Each calls f for each open stream. f may release streams and open none.
func (m *Machine) Each(f func(s *Stream)) {
	for _, s := range m.streams {
		f(s)
	}
}
