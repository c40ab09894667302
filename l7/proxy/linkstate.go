package proxy

// This file has the states of a link: of its life, its input, its output, and how it closes.

// linkStage is how far the life of a link is.
type linkStage uint8

const (
	linkOpen        linkStage = iota // bytes pass between the connection and the session
	linkConnecting                   // the transport to a backend is not established
	linkHandshaking                  // of TLS
	linkClosing                      // it closes once all is sent
	linkClosed
)

// closeMode is how a link closes its connection. Later ones prevail.
type closeMode uint8

const (
	closeFIN    closeMode = iota
	closeLinger           // what the peer still sends is read for a while: it would make the end a reset (RFC 9112 9.6)
	closeReset
)

// inputState is how far the input of a connection is.
type inputState uint8

const (
	inputDrained  inputState = iota // all that has arrived was read
	inputReadable                   // there may be more to read
	inputEnded                      // by FIN or close_notify. What follows close_notify is ignored (RFC 8446 6.1)
	inputReported                   // as inputEnded, and the session knows
)

// demand is whether the session takes input.
type demand uint8

const (
	wanted   demand = iota
	paused          // it takes none for now
	recalled        // it takes input again, and is called once even without any: it may have more to do
)

// outputState is how far the output of a connection is.
type outputState uint8

const (
	outputOpen     outputState = iota
	outputEnding               // it ends after what is gathered
	outputNotified             // close_notify was gathered
	outputEnded
)

// moveState is how content moves to another connection without being read.
type moveState uint8

const (
	moveIdle        moveState = iota
	moveHolding               // the loop holds bytes that the other connection has not taken
	moveUnsupported           // the loop cannot
)

// open reports whether the session still sends and receives.
func (l *link) open() bool { return l.stage < linkClosing }

func (l *link) closed() bool { return l.stage == linkClosed }

// closeBy raises the way in which the connection will close.
func (l *link) closeBy(m closeMode) { l.mode = max(l.mode, m) }

// ended reports whether no more input follows.
func (l *link) ended() bool { return l.input >= inputEnded }

// endsOutput reports whether the output ends after what is gathered, or has ended.
func (l *link) endsOutput() bool { return l.output != outputOpen }

// pause stops the input of the session, until resume.
func (l *link) pause() { l.demand = paused }
