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

// dialQUIC opens a connection to a backend. d waits for it, and its deadline bounds that.
func (w *Worker) dialQUIC(d *dialing) error {
	if w.endpoints == nil {
		return ErrEndpoints
	}
	tc := d.key.pool.TLS.Clone()
	tc.NextProtos = []string{http3.NextProto}
	addr := net.UDPAddrFromAddrPort(d.key.backend.Address())
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(d.key.pool.Connect, DefaultConnect))
	qc := &quic.Config{
		IdleTimeout: cmp.Or(d.key.pool.Idle, DefaultIdle) + time.Minute, MaxStreams: -1,
		StreamWindow: side.BackWindow, MaxStreamWindow: side.BackWindow, ConnWindow: side.MaxShared * side.BackWindow, MaxConnWindow: side.MaxShared * side.BackWindow,
	}
	go func() {
		defer cancel()
		t, err := w.endpoints.dialer(w)
		if err != nil {
			w.Loop.Do(func() { d.failedQUIC(fmt.Errorf("%w: %w", errLocal, err)) })
			return
		}
		q, err := t.Dial(ctx, addr, tc, qc)
		if err != nil {
			w.Loop.Do(func() { d.failedQUIC(err) })
			return
		}
		w.hub.Serve(q, quicconn.Options{Uni: 3}, uint64(http3.NoError), d.establishedQUIC)
	}()
	return nil
}

// failedQUIC says that there is no connection.
func (d *dialing) failedQUIC(err error) {
	if d.l.Closed() {
		return // the deadline was before
	}
	d.l.Finish()
	var te *quic.TransportError
	switch {
	case errors.Is(err, errLocal): // there is no socket
		err = errLocal
	case errors.Is(err, quic.ErrHandshakeTimeout), errors.Is(err, context.DeadlineExceeded):
		err = errConnectTimeout
	case errors.As(err, &te):
		err = errTLS
	default:
		err = errConnect
	}
	d.Failed(err)
}

// establishedQUIC begins the requests that wait for a connection.
func (d *dialing) establishedQUIC(c *quicconn.Conn) quicconn.Handler {
	w := d.w
	s := newServer(w, d.key)
	b := h3side.NewBack(&w.Runner, c, s)
	s.conn = b
	if d.l.Closed() { // it comes too late
		s.state = detached
		b.Conn.Close(http3.NoError, "", nil)
		return b
	}
	d.l.Finish()
	d.begin(s, true)
	return b
}
