package link

// This file has the states of a link: of its life, its input, its output, and how it closes.

// Stage is the stage in the life of a link.
type Stage uint8

const (
	Open        Stage = iota // bytes pass between the connection and the session
	Connecting               // the transport to a backend is not established
	Handshaking              // of TLS
	Closing                  // it closes once all is sent
	Closed
)

// CloseMode selects how a link closes its connection. Later ones prevail: once a response was cut, no later call may make the end
// look regular, or a client takes half of a response for all of it (RFC 9112 8).
type CloseMode uint8

const (
	FIN    CloseMode = iota
	Linger           // what the peer still sends is read for a while: it would make the end a reset (RFC 9112 9.6)
	Reset
)

// InputState is the state of the input of a connection.
type InputState uint8

const (
	InputDrained  InputState = iota // all that has arrived was read
	InputReadable                   // there may be more to read
	InputEnded                      // by FIN or close_notify. What follows close_notify is ignored (RFC 8446 6.1)
	InputReported                   // as InputEnded, and the session knows
)

// Demand is whether the session takes input. It is the flow control of a connection: while it is Paused the link does not read, the
// kernel's buffer fills, and TCP's window stops the peer (RFC 9293 3.8.6).
type Demand uint8

const (
	Wanted   Demand = iota
	Paused          // it takes none for now
	Recalled        // it takes input again, and is called once even without any: it may have more to do
)

// OutputState is the state of the output of a connection.
type OutputState uint8

const (
	OutputOpen     OutputState = iota
	OutputEnding               // it ends after what is gathered
	OutputNotified             // close_notify was gathered
	OutputEnded
)

// MoveState is the state of content that moves to another connection without being read.
type MoveState uint8

const (
	NotHeld     MoveState = iota // the loop holds nothing of it
	Holding                      // the loop holds bytes that the other connection has not taken
	Unsupported                  // the loop cannot
)

// Open reports whether the session still sends and receives.
func (l *Link) Open() bool { return l.Stage < Closing }

// Closed reports whether the connection has been given back.
func (l *Link) Closed() bool { return l.Stage == Closed }

// CloseBy raises the way in which the connection will close.
func (l *Link) CloseBy(m CloseMode) { l.Mode = max(l.Mode, m) }

// Ended reports whether no more input follows.
func (l *Link) Ended() bool { return l.Input >= InputEnded }

// endsOutput reports whether the output ends after what is gathered, or has ended.
func (l *Link) endsOutput() bool { return l.output != OutputOpen }

// Pause stops the input of the session, until resume.
func (l *Link) Pause() { l.Demand = Paused }
