package quic

import (
	"errors"
	"io"
	"sync/atomic"

	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"
)

// TransportStats are counters of a Transport since it was opened, except those that say "now".
type TransportStats struct {
	Accepted, Dialed, DialErrors uint64 // connections
	Conns                        int    // connections now, those that Accept has not returned not included
	Handshakes                   int    // of clients under way now
	Retries                      uint64 // Retry packets asked for
	Refused                      uint64 // handshakes refused by MaxHandshakes, MaxConns or Refuse

	ClosedLocal, ClosedRemote uint64 // ends of connections by CloseWithError
	TransportErrors           uint64 // by a violation of the protocol, found by either end
	Timeouts, StatelessResets uint64

	Dropped             Drops  // packets that belong to no connection
	VersionNegotiations uint64 // sent
}

// Drops counts packets that were dropped before they reached a connection.
type Drops struct {
	Malformed           uint64 // the header cannot be parsed, or does not fit its place
	UnknownConnectionID uint64
	UnknownVersion      uint64
	Undecryptable       uint64
	Overload            uint64 // queues were full
	Other               uint64
}

// Stats returns the counters.
func (t *Transport) Stats() TransportStats {
	t.mu.Lock()
	conns := len(t.conns)
	t.mu.Unlock()
	e := t.events
	return TransportStats{
		Accepted: e.accepted.Load(), Dialed: e.dialed.Load(), DialErrors: e.dialErrors.Load(),
		Conns: conns, Handshakes: int(t.admission.handshakes.Load()),
		Retries: t.admission.retries.Load(), Refused: t.admission.refused.Load(),
		ClosedLocal: e.closedLocal.Load(), ClosedRemote: e.closedRemote.Load(),
		TransportErrors: e.transportErrors.Load(), Timeouts: e.timeouts.Load(),
		StatelessResets: e.resets.Load(), VersionNegotiations: e.negotiations.Load(),
		Dropped: Drops{
			Malformed: e.malformed.Load(), UnknownConnectionID: e.unknownID.Load(),
			UnknownVersion: e.unknownVersion.Load(), Undecryptable: e.undecryptable.Load(),
			Overload: e.overload.Load(), Other: e.other.Load(),
		},
	}
}

// eventCounter counts what happens outside of connections, and passes events on to a qlog.
type eventCounter struct {
	log qlogwriter.Recorder // nil without a qlog

	accepted, dialed, dialErrors                                         atomic.Uint64
	closedLocal, closedRemote, transportErrors, timeouts, resets         atomic.Uint64
	negotiations                                                         atomic.Uint64
	malformed, unknownID, unknownVersion, undecryptable, overload, other atomic.Uint64
}

func newEventCounter(w io.WriteCloser) *eventCounter {
	e := &eventCounter{}
	if w != nil {
		seq := qlogwriter.NewFileSeq(w)
		go seq.Run()
		e.log = seq.AddProducer()
	}
	return e
}

// RecordEvent implements qlogwriter.Recorder.
func (e *eventCounter) RecordEvent(ev qlogwriter.Event) {
	switch ev := ev.(type) {
	case qlog.PacketDropped:
		e.dropCounter(ev.Trigger).Add(1)
	case qlog.VersionNegotiationSent:
		e.negotiations.Add(1)
	}
	if e.log != nil {
		e.log.RecordEvent(ev)
	}
}

func (e *eventCounter) dropCounter(why qlog.PacketDropReason) *atomic.Uint64 {
	switch why {
	case qlog.PacketDropHeaderParseError, qlog.PacketDropUnexpectedPacket, qlog.PacketDropProtocolViolation:
		return &e.malformed
	case qlog.PacketDropUnknownConnectionID:
		return &e.unknownID
	case qlog.PacketDropUnsupportedVersion, qlog.PacketDropUnexpectedVersion:
		return &e.unknownVersion
	case qlog.PacketDropPayloadDecryptError, qlog.PacketDropKeysUnavailable:
		return &e.undecryptable
	case qlog.PacketDropDOSPrevention:
		return &e.overload
	}
	return &e.other
}

// Close implements qlogwriter.Recorder.
func (e *eventCounter) Close() error {
	if e.log == nil {
		return nil
	}
	return e.log.Close()
}

// ended counts the end of a connection.
func (e *eventCounter) ended(cause error) {
	var app *ApplicationError
	switch {
	case errors.As(cause, &app) && app.Remote:
		e.closedRemote.Add(1)
	case errors.As(cause, &app):
		e.closedLocal.Add(1)
	case errors.Is(cause, ErrIdleTimeout) || errors.Is(cause, ErrHandshakeTimeout):
		e.timeouts.Add(1)
	case errors.Is(cause, ErrStatelessReset):
		e.resets.Add(1)
	default:
		e.transportErrors.Add(1)
	}
}
