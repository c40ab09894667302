package statesync

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"time"

	"github.com/millrace/millrace/l4/datapath"
)

// sendBuffer bounds what the kernel holds of a stream, so that changes wait behind little of a full transfer.
const sendBuffer = 256 << 10

// sendTo runs one stream to the peer and returns for how long the peer has answered on it.
func (p *Peer) sendTo(ctx context.Context) (lived time.Duration, err error) {
	lived, err = p.sendVersion(ctx, version)
	if older, ok := errors.AsType[olderError](err); ok {
		lived, err = p.sendVersion(ctx, byte(older))
	}
	return lived, err
}

// sendVersion is sendTo with versions up to most.
func (p *Peer) sendVersion(ctx context.Context, most byte) (lived time.Duration, err error) {
	conn, err := p.dial(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if c, ok := conn.(*net.TCPConn); ok {
		_ = c.SetWriteBuffer(sendBuffer) // without, changes wait longer
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	s, err := newSession(conn, p.cfg.Key, true, most)
	if err == nil {
		err = s.agree(p.cfg.Agreement)
	}
	if err != nil {
		return 0, err
	}
	p.send.first.Store(false)
	p.noteRefused(false)
	p.mu.Lock()
	p.changed(&p.send, "send", true, nil)
	p.mu.Unlock()
	w := &sender{p: p, s: s, msg: []byte{typeRecords}, began: time.Now()}
	ended := make(chan struct{})
	var echoErr error
	go func() { echoErr = w.readEchoes(); close(ended) }()
	err = w.run(ctx, ended)
	conn.Close()
	<-ended
	return w.lived, cmp.Or(err, echoErr)
}

// sender is a stream to the peer: it collects records into frames.
type sender struct {
	p    *Peer
	s    *session
	msg  []byte
	n    uint64    // records in msg
	beat time.Time // of the last heartbeat
	at   int64     // place in the table of the full transfer, below 0 without one
	err  error     // of the stream: nothing is sent any more

	began time.Time
	lived time.Duration // until the last echo
}

const (
	// flushEvery is the time in which changes are collected. Pages of a full transfer are read in between.
	flushEvery = 5 * time.Millisecond
	pages      = 16

	// fullFrame is when a frame is sent before that. A network that takes one within deadAfter is fast enough.
	fullFrame = 8 << 10
)

// run sends what changes, and all connections at the start and whenever changes were lost, until ctx ends, the stream
// breaks, or ended is closed.
func (w *sender) run(ctx context.Context, ended <-chan struct{}) error {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	table, again := w.p.cfg.Table, false
	changes := func() {
		switch lost := table.Changes(w.add); {
		case lost && w.at < 0:
			w.at = 0
		case lost:
			again = true // what was lost may be of connections that the transfer has passed
		}
	}
	for {
		changes()
		for i := 0; i < pages && w.at >= 0 && w.err == nil; i++ {
			if w.at = table.Page(w.at, func(r *datapath.Record) { w.add(r) }); w.at < 0 {
				w.p.send.transfers.Add(1)
				if again {
					w.at, again = 0, false
				}
			}
			changes()
		}
		if w.flush(); w.err != nil {
			return w.err
		}
		w.p.send.first.Store(w.at < 0)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ended:
			return nil
		case <-tick.C:
		}
	}
}

func (w *sender) add(r *datapath.Record) bool {
	w.msg = appendRecord(w.msg, r, w.s.version)
	if w.n++; len(w.msg) > fullFrame-maxRecord {
		w.flush()
	}
	return w.err == nil
}

// flush sends what is collected, and a heartbeat when its time has come. Heartbeats go on during a transfer: their
// echoes say that the peer takes it.
func (w *sender) flush() {
	if w.n > 0 && w.err == nil {
		if w.err = w.s.write(w.msg); w.err == nil {
			w.p.send.records.Add(w.n)
			w.p.send.bytes.Add(uint64(len(w.s.out)))
		}
	}
	w.msg, w.n = append(w.msg[:0], typeRecords), 0
	if now := time.Now(); now.Sub(w.beat) >= heartbeatEvery && w.err == nil {
		done := byte(0)
		if w.at < 0 {
			done = 1
		}
		w.beat = now
		w.err = w.s.write(binary.BigEndian.AppendUint64([]byte{typeHeartbeat, done}, uint64(now.UnixNano())))
	}
}

// readEchoes reads what comes back on the stream, until it breaks.
func (w *sender) readEchoes() error {
	for {
		b, err := w.s.read()
		if err != nil {
			return err
		}
		if len(b) != 9 || b[0] != typeEcho {
			return ErrFormat
		}
		now := time.Now()
		w.lived = now.Sub(w.began)
		w.p.send.lag.Store(now.UnixNano() - int64(binary.BigEndian.Uint64(b[1:])))
	}
}
