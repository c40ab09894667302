package http3

import (
	"github.com/millrace/millrace/http3/qpack"
)

// Role is which end of a connection a Machine is.
type Role uint8

// Values of Role.
const (
	RoleClient Role = iota
	RoleServer
)

// MachineOptions configures a Machine. The zero value is valid.
type MachineOptions struct {
	// TableCapacity is the dynamic table that the peer may use, in bytes; 0 is DefaultTableCapacity, a
	// negative number is no table. BlockedStreams is the number of streams that may wait for it; 0 is
	// DefaultBlockedStreams, a negative number is none.
	TableCapacity, BlockedStreams int
	// MaxFieldSection bounds the field sections that are received, in bytes; 0 is
	// DefaultFieldSection.
	MaxFieldSection int
	// MaxFields bounds their field lines, as semantics.Lines counts them; 0 is no bound but that of the size.
	MaxFields int
	// Encoder configures the compression of what is sent.
	Encoder qpack.EncoderOptions
	// ExtendedConnect permits CONNECT with :protocol, at a server.
	ExtendedConnect bool
	// Datagrams reports that HTTP datagrams are understood.
	Datagrams bool
	// WebTransport is the number of sessions that are permitted; 0 is none. It implies the two above.
	WebTransport uint64
	// Session is the credit of the peer in a session. The zero value has the defaults where WebTransport permits
	// several sessions, which must have flow control then (draft 5.1), and none otherwise. The limits hold if
	// both ends have some.
	Session SessionLimits
	// MaxPushes is the number of pushes that a client permits from the start; 0 is none.
	MaxPushes uint64
	// MaxResets bounds the requests that a client cancels, or has reset by errors of its own, beyond those that it lets
	// finish; 0 is DefaultMaxResets. It is what a rapid reset meets.
	MaxResets int
	// MaxIdleFrames bounds the frames without effect beyond 16 for each message; 0 is
	// DefaultMaxIdleFrames.
	MaxIdleFrames int
}

// Defaults of MachineOptions.
const (
	DefaultTableCapacity  = 4096
	DefaultBlockedStreams = 16
	DefaultFieldSection   = 64 << 10
	DefaultMaxResets      = 200
	DefaultMaxIdleFrames  = 10000
)

// withDefaults fills in defaults; negative numbers become none.
func (o MachineOptions) withDefaults() MachineOptions {
	fill := func(v *int, zero int) {
		if *v == 0 {
			*v = zero
		}
		*v = max(*v, 0)
	}
	fill(&o.TableCapacity, DefaultTableCapacity)
	fill(&o.BlockedStreams, DefaultBlockedStreams)
	fill(&o.MaxFieldSection, DefaultFieldSection)
	fill(&o.MaxResets, DefaultMaxResets)
	fill(&o.MaxIdleFrames, DefaultMaxIdleFrames)
	if o.WebTransport > 0 {
		o.ExtendedConnect, o.Datagrams = true, true
	}
	switch {
	case o.WebTransport == 0:
		o.Session = SessionLimits{}
	case o.WebTransport > 1 && !o.Session.declared():
		o.Session = SessionLimits{Streams: DefaultSessionStreams, UniStreams: DefaultSessionStreams, Data: DefaultSessionData}
	}
	return o
}

// settings returns what one end says; o has its defaults.
func (o MachineOptions) settings(role Role) Settings {
	return Settings{
		TableCapacity: uint64(o.TableCapacity), BlockedStreams: uint64(o.BlockedStreams), MaxFieldSection: uint64(o.MaxFieldSection),
		ExtendedConnect: o.ExtendedConnect && role == RoleServer, Datagrams: o.Datagrams,
		WebTransport: o.WebTransport, sessions: o.WebTransport > 0, Session: o.Session,
	}
}

// EventKind is the kind of an Event.
type EventKind uint8

// Values of EventKind.
const (
	// NeedInput ends the events: there is no more to report until there is more input, or, while
	// Stream.Blocked, until the event Unblocked.
	NeedInput EventKind = iota
	// Headers is the header of a message: Stream.Message has it. A response with a status below 200 is
	// followed by another.
	Headers
	// TooLarge is a header above MaxFieldSection or MaxFields, in its place. A server should answer 431
	// (RFC 9114 4.2.2). Further input of the stream is ignored.
	TooLarge
	// Data is a part of the content.
	Data
	// Trailers come after the content: Stream.Section has them.
	Trailers
	// End is the end of the stream, after which nothing comes.
	End
	// PeerSettings reports that Machine.Peer has the peer's settings.
	PeerSettings
	// GoAway has in ID the first request, or at a server the first push, that the peer will not
	// process (RFC 9114 5.2).
	GoAway
	// PriorityUpdate has in ID the stream of a request, or the push if Push is set, and its Priority.
	PriorityUpdate
	// Unblocked reports that the stream Blocked can be read on: call Input for it.
	Unblocked
	// PushPromise has in ID the push. Stream.Message has the request, until the next Input.
	PushPromise
	// PushStream reports that the stream carries the response of the push ID.
	PushStream
	// CancelPush has in ID the push that the peer does not want, or will not send.
	CancelPush
	// MaxPushID has in ID the greatest push that the client permits.
	MaxPushID
	// WebTransport reports that the stream belongs to the session ID; what follows on it is Data.
	WebTransport
	// Unknown is a stream of unknown type, whose reading should end with StreamCreationError
	// (RFC 9114 6.2).
	Unknown
)

// Event is a report of a Machine on its input.
type Event struct {
	Payload  []byte  // of Data; it lies in the input
	Blocked  *Stream // of Unblocked
	ID       uint64
	Priority Priority
	Kind     EventKind
	Push     bool // of PriorityUpdate
}

// Machine is one end of a connection of HTTP/3. The bytes of streams go in by Input, events come out of it, and
// what is to be sent comes out of the Append methods. Whoever drives it moves the bytes: an event
// loop, or the goroutines of Server and Transport under a lock. It does no input or output and has no
// goroutine, no lock and no clock. Once its buffers have grown it allocates nothing.
//
// The driver opens three unidirectional streams, and sends on each what AppendControl, AppendEncoder and
// AppendDecoder append, from the start and whenever Pending is true.
type Machine struct {
	role    Role
	options MachineOptions
	own     Settings
	peer    Settings
	decoder *qpack.Decoder
	encoder *qpack.Encoder

	hasPeer            bool
	remembered         *Settings // of the session that was resumed
	unis               uint8     // critical streams that the peer has opened, by type
	encOpen, decOpen   bool      // the types of our own streams were appended
	control            []byte
	section            []byte        // scratch of the encoder
	fields             []qpack.Field // scratch of messages
	digits             []byte        // of their numbers: room for a status and a length
	blocked            []*Stream
	free               []*Stream
	sentGoAway         uint64 // the last ID, none before
	gotGoAway          uint64
	nextPush, maxPush  uint64 // at a server: IDs not promised yet, and those permitted
	permitted          uint64 // at a client: pushes permitted
	resets, idleFrames int
	err                error
}

const none = 1<<64 - 1

// NewMachine returns the machine of one end.
func NewMachine(role Role, o MachineOptions) *Machine {
	o = o.withDefaults()
	m := &Machine{role: role, options: o, sentGoAway: none, gotGoAway: none, own: o.settings(role), digits: make([]byte, 0, 3+20)}
	m.decoder = qpack.NewDecoder(qpack.DecoderOptions{
		MaxCapacity: m.own.TableCapacity, MaxBlocked: o.BlockedStreams, MaxSectionSize: m.own.MaxFieldSection,
		MaxLines: max(o.MaxFields, 0),
	})
	m.encoder = qpack.NewEncoder(o.Encoder)
	m.control = m.own.append(append(m.control, streamControl))
	if role == RoleClient && o.MaxPushes > 0 {
		m.permitted = o.MaxPushes
		m.control = appendVarintFrame(m.control, frameMaxPushID, o.MaxPushes-1)
	}
	return m
}

// MaxRequestID is above the IDs of all requests: GoAway with it says that the end is near, and refuses nothing yet (RFC 9114
// 5.2).
const MaxRequestID = maxVarint &^ 3

// Peer returns the peer's settings, known once they have arrived.
func (m *Machine) Peer() (s Settings, known bool) { return m.peer, m.hasPeer }

// Datagrams reports whether both ends understand HTTP datagrams, as far as is known.
func (m *Machine) Datagrams() bool { return m.own.Datagrams && m.peer.Datagrams }

// Remember has a client that sends early data use the settings that the server had when it issued the session, until
// its new ones arrive (RFC 9114 7.2.4.2). New ones that permit less are an error of the connection. If the server rejects
// early data, a new Machine is needed.
func (m *Machine) Remember(s Settings) {
	if m.role == RoleClient && !m.hasPeer {
		m.peer, m.remembered = s, &s
		m.encoder.SetPeer(s.TableCapacity, s.BlockedStreams)
	}
}

// fail keeps the error that ends the connection.
func (m *Machine) fail(err error) error {
	if m.err == nil {
		m.err = err
	}
	return m.err
}

// idle counts a frame without effect; message one with.
func (m *Machine) idle() error {
	if m.idleFrames++; m.idleFrames > m.options.MaxIdleFrames {
		return connError(ExcessiveLoad, "too many frames without effect")
	}
	return nil
}

func (m *Machine) message() { m.idleFrames = max(0, m.idleFrames-16) }

// Cancelled takes notice that the peer reset a stream, or asked us to send no more on it, before the response
// was complete, or that the driver abandons reading it. The driver then calls Release.
func (m *Machine) Cancelled(s *Stream, byPeer bool) error {
	if s.kind != request && s.kind != push && s.kind != fresh {
		if s.kind == control || s.kind == encoderStream || s.kind == decoderStream {
			return m.fail(connError(ClosedCriticalStream, "a critical stream was reset")) // RFC 9114 6.2.1
		}
		return nil
	}
	if !s.ended {
		m.decoder.Cancel(s.id)
		m.forget(s)
	}
	s.state, s.ended = discarding, true
	if byPeer {
		if err := m.countReset(s); err != nil {
			return err
		}
	}
	return m.err
}

// Completed takes notice that a response was sent, or received, to its end.
func (m *Machine) Completed() { m.resets = max(0, m.resets-1) }

// forget drops a stream from those that are blocked.
func (m *Machine) forget(s *Stream) {
	for i, b := range m.blocked {
		if b == s {
			m.blocked = append(m.blocked[:i], m.blocked[i+1:]...)
			s.isBlocked = false
			return
		}
	}
}

// qpackError returns the error of HTTP/3 for one of QPACK.
func qpackError(err error) error {
	if e, ok := err.(*qpack.Error); ok { //nolint:errorlint // they come as they are
		return &ConnError{Code: ErrorCode(e.Code), Text: e.Text}
	}
	return err
}
