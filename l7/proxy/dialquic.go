package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/l7/h3side"
	"github.com/millrace/millrace/l7/quicconn"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/quic"
)

// sessionKeepAlive is the time without a packet after which a connection with a session sends one.
const sessionKeepAlive = 15 * time.Second

// dialQUIC opens a connection to a backend. The deadline of its link bounds that.
//
// Package quic has goroutines and waits, so that the dial is one of its own and comes back to the loop as a command.
// The time of the context ends the goroutine; that of the link is the loop's, and the exchange's error does not depend
// on when the goroutine is scheduled.
//
// The idle timeout of QUIC is longer than the pool's: the gateway closes the connection first, with H3_NO_ERROR, and no
// request goes out on a connection that has silently ended (RFC 9000 10.1).
func (w *Worker) dialQUIC(s *backConn) error {
	if w.endpoints == nil {
		return ErrEndpoints
	}
	tc := s.key.pool.TLS.Clone()
	tc.NextProtos = []string{http3.NextProto}
	s.prepareEarly(tc)
	addr := net.UDPAddrFromAddrPort(s.key.backend.Address())
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(s.key.pool.Connect, DefaultConnect))
	qc := &quic.Config{
		ZeroRTT:     s.early == asksEarly,
		IdleTimeout: cmp.Or(s.key.pool.Idle, DefaultIdle) + time.Minute, MaxStreams: -1,
		StreamWindow: side.BackWindow, MaxStreamWindow: side.BackWindow, ConnWindow: side.MaxShared * side.BackWindow, MaxConnWindow: side.MaxShared * side.BackWindow,
	}
	if of := s.key.sessions; of != nil { // streams that the backend opens, and the three of HTTP/3
		qc.Datagrams, qc.ResetAt = true, true
		qc.MaxStreams, qc.MaxUniStreams = int64(of.Limits.Streams), int64(of.Limits.UniStreams)+3
		qc.ConnWindow = max(2*side.BackWindow, of.Limits.Data) // beside capsules and the response
		qc.MaxConnWindow = qc.ConnWindow
		qc.IdleTimeout, qc.KeepAlive = of.Idle+time.Minute, sessionKeepAlive // a session may be silent for longer than its backend's transport
	}
	go func() {
		defer cancel()
		t, err := w.endpoints.dialer(w)
		if err != nil {
			w.Loop.Do(func() { s.failedQUIC(fmt.Errorf("%w: %w", errLocal, err)) })
			return
		}
		q, err := t.Dial(ctx, addr, tc, qc)
		if err != nil {
			w.Loop.Do(func() { s.failedQUIC(err) })
			return
		}
		made := s.establishedQUIC
		if qc.ZeroRTT && !handshaken(q) {
			made = s.earlyQUIC
		}
		w.hub.Serve(q, quicconn.Options{Uni: 3}, uint64(http3.NoError), made)
	}()
	return nil
}

// failedQUIC reports that there is no connection. An error of the handshake names the certificate or the protocol as
// the cause, not the network: it is what operators look for first.
func (s *backConn) failedQUIC(err error) {
	if s.link.Closed() {
		return // the deadline was before
	}
	s.link.Finish()
	err = quicFailure(err)
	if err == errBackendFull {
		s.w.dials.failed()
	}
	opener{s}.Failed(err)
	if err == errBackendFull {
		s.w.queuesAt = s.w.Now.Add(queueCheck) // as in notOpened
	}
}

// quicFailure returns what the error of a dial, or of a handshake, is to requests that wait for it.
func quicFailure(err error) error {
	var te *quic.TransportError
	switch {
	case lacksDescriptor(err):
		return errBackendFull
	case errors.Is(err, errLocal): // there is no socket
		return errLocal
	case errors.Is(err, quic.Err0RTTRejected):
		return errUnprocessed
	case errors.Is(err, quic.ErrHandshakeTimeout), errors.Is(err, context.DeadlineExceeded):
		return errConnectTimeout
	case errors.As(err, &te):
		return errTLS
	}
	return errConnect
}

// establishedQUIC begins the requests that wait for a connection. The link has done its work: streams have no link. The loop calls it
// (quicconn.Hub.Serve); until then the deadline of the link may have ended the attempt.
func (s *backConn) establishedQUIC(c *quicconn.Conn) quicconn.Handler {
	var b *h3side.Back
	if of := s.key.sessions; of != nil {
		b = h3side.NewSessionBack(&s.w.Runner, c, s.key.pool.Header, of.Limits, s)
	} else {
		b = h3side.NewBack(&s.w.Runner, c, s.key.pool.Header, s)
	}
	if s.link.Closed() { // it comes too late
		b.Conn.Close(http3.NoError, "", nil)
		return b
	}
	s.link.Finish()
	s.established(b, true)
	return b
}
