package statesync

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/gateway/datapath"
)

// Table is the connections of this gateway. Its methods are called by one goroutine each.
type Table interface {
	// Changes passes the connections that changed since the last call to yield, until it returns false; lost says
	// that some are missing.
	Changes(yield func(*datapath.Record) bool) (lost bool)

	// Page passes connections of the table from a place on to yield and returns the next place, below 0 at the end.
	Page(at int64, yield func(*datapath.Record)) (next int64)

	// Import enters connections of the peer.
	Import([]datapath.Record)
}

// Config is what a Peer needs.
type Config struct {
	Listen, Peer netip.AddrPort
	Key          []byte // 32 bytes
	Agreement    Agreement
	Table        Table
	Dialer       net.Dialer
	OnChange     func(Event) // of a stream; called by several goroutines; may be nil
}

// Event is a stream that came up or went down.
type Event struct {
	Stream string // "send" or "receive"
	Up     bool
	Cause  error // why it is down
}

// Peer is the other gateway.
type Peer struct {
	cfg      Config
	listener net.Listener
	back     chan bool // the peer has dialed: it can be dialed too

	send, receive stream

	mu      sync.Mutex
	current net.Conn // the stream that is received
}

// stream is the counts of one direction.
type stream struct {
	up                        atomic.Bool
	records, bytes, transfers atomic.Uint64
	lag                       atomic.Int64 // of the last heartbeat, ns
	first                     atomic.Bool  // the first full transfer is complete
}

// Listen opens the listener. Run serves it.
func Listen(ctx context.Context, cfg Config) (*Peer, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.Listen.String())
	if err != nil {
		return nil, err
	}
	return &Peer{cfg: cfg, listener: l, back: make(chan bool, 1)}, nil
}

// Close closes the listener of a Peer that does not run.
func (p *Peer) Close() error { return p.listener.Close() }

// Run sends and receives until ctx ends.
func (p *Peer) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { p.sendLoop(ctx) })
	all.Go(func() { p.acceptLoop(ctx) })
	<-ctx.Done()
	p.listener.Close()
	p.replace(nil)
	all.Wait()
}

// changed reports that a stream came up or went down.
func (p *Peer) changed(s *stream, name string, up bool, cause error) {
	if s.up.Swap(up) == up && (up || cause == nil) {
		return
	}
	if p.cfg.OnChange != nil {
		p.cfg.OnChange(Event{name, up, cause})
	}
}

// Times between attempts to reach the peer.
const (
	redialFirst = 100 * time.Millisecond
	redialLast  = 2 * time.Second
)

// sendLoop dials the peer again and again and sends connections. Changes meanwhile are thrown away: the full transfer
// at the start of each stream covers them.
func (p *Peer) sendLoop(ctx context.Context) {
	pause, last := redialFirst, ""
	for ctx.Err() == nil {
		began := time.Now()
		err := p.sendTo(ctx)
		if ctx.Err() != nil {
			return
		}
		if text := err.Error(); text != last || p.send.up.Load() { // the same reason is reported once
			last = text
			p.changed(&p.send, "send", false, err)
		}
		p.send.up.Store(false)
		if time.Since(began) > deadAfter {
			pause = redialFirst
		}
		pause = p.discard(ctx, pause)
	}
}

// discard throws changes away for a pause, or until the peer dials, and returns the next pause.
func (p *Peer) discard(ctx context.Context, pause time.Duration) time.Duration {
	end, tick := time.After(pause), time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		p.cfg.Table.Changes(func(*datapath.Record) bool { return true })
		select {
		case <-ctx.Done():
			return 0
		case <-p.back:
			return redialFirst
		case <-end:
			return min(2*pause, redialLast)
		case <-tick.C:
		}
	}
}

// sendTo runs one stream to the peer.
func (p *Peer) sendTo(ctx context.Context) error {
	dialer := p.cfg.Dialer
	dialer.Timeout = deadAfter
	conn, err := dialer.DialContext(ctx, "tcp", p.cfg.Peer.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	s, err := newSession(conn, p.cfg.Key, true)
	if err == nil {
		err = s.agree(p.cfg.Agreement)
	}
	if err != nil {
		return err
	}
	p.changed(&p.send, "send", true, nil)
	echoes := make(chan error, 1)
	go func() { echoes <- p.readEchoes(s) }()
	err = p.sendRecords(ctx, s, echoes)
	conn.Close()
	return err
}

// flushEvery is how long changes are collected. Pages of a full transfer are read in between.
const (
	flushEvery = 5 * time.Millisecond
	pages      = 16
)

// sendRecords sends what changes, and all connections at the start and whenever changes were lost.
func (p *Peer) sendRecords(ctx context.Context, s *session, echoes <-chan error) error {
	w := &batch{s: s, stream: &p.send, msg: []byte{typeRecords}}
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	at, beat := int64(0), time.Time{}
	for {
		if p.cfg.Table.Changes(w.add) && at < 0 {
			at = 0
		}
		for i := 0; i < pages && at >= 0; i++ {
			if at = p.cfg.Table.Page(at, func(r *datapath.Record) { w.add(r) }); at < 0 {
				p.send.transfers.Add(1)
			}
		}
		if w.flush(); w.err != nil {
			return w.err
		}
		if now := time.Now(); now.Sub(beat) >= heartbeatEvery {
			done := byte(0)
			if at < 0 {
				done = 1
			}
			beat = now
			if err := s.write(binary.BigEndian.AppendUint64([]byte{typeHeartbeat, done}, uint64(now.UnixNano()))); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-echoes:
			return err
		case <-tick.C:
		}
	}
}

// batch collects records into frames.
type batch struct {
	s      *session
	stream *stream
	msg    []byte
	n      uint64
	err    error // of the stream: nothing is sent any more
}

func (w *batch) add(r *datapath.Record) bool {
	w.msg = appendRecord(w.msg, r)
	if w.n++; len(w.msg) > maxFrame-maxRecord-64 {
		w.flush()
	}
	return w.err == nil
}

func (w *batch) flush() {
	if w.n > 0 && w.err == nil {
		if w.err = w.s.write(w.msg); w.err == nil {
			w.stream.records.Add(w.n)
			w.stream.bytes.Add(uint64(len(w.s.out)))
		}
	}
	w.msg, w.n = append(w.msg[:0], typeRecords), 0
}

// readEchoes reads what comes back on a stream that sends.
func (p *Peer) readEchoes(s *session) error {
	for {
		b, err := s.read()
		if err != nil {
			return err
		}
		if len(b) != 9 || b[0] != typeEcho {
			return ErrFormat
		}
		p.send.lag.Store(time.Now().UnixNano() - int64(binary.BigEndian.Uint64(b[1:])))
	}
}

// acceptLoop serves the peer's streams, one at a time: a new one ends the one before.
func (p *Peer) acceptLoop(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	slots := make(chan bool, 4) // handshakes at once
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			time.Sleep(redialFirst)
			continue
		}
		if a, ok := netip.AddrFromSlice(conn.RemoteAddr().(*net.TCPAddr).IP); !ok || a.Unmap() != p.cfg.Peer.Addr() {
			conn.Close()
			continue
		}
		select {
		case slots <- true:
		default:
			conn.Close()
			continue
		}
		all.Go(func() {
			defer conn.Close()
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			defer stop()
			s, err := newSession(conn, p.cfg.Key, false)
			if err == nil {
				err = s.agree(p.cfg.Agreement)
			}
			if err == nil {
				p.replace(conn)
			}
			<-slots
			if err == nil {
				p.changed(&p.receive, "receive", true, nil)
				select {
				case p.back <- true:
				default:
				}
				err = p.receiveFrom(s)
			}
			if ctx.Err() == nil && p.isCurrent(conn, err) {
				p.changed(&p.receive, "receive", false, err)
			}
		})
	}
}

// replace makes a stream the one that is received, and ends the one before.
func (p *Peer) replace(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil {
		p.current.Close()
	}
	p.current = conn
}

// isCurrent reports whether what a stream ended by says something of the peer: no other stream has replaced it.
func (p *Peer) isCurrent(conn net.Conn, _ error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current == conn || p.current == nil
}

// receiveFrom enters what a stream brings.
func (p *Peer) receiveFrom(s *session) error {
	var list []datapath.Record
	for {
		b, err := s.read()
		if err != nil {
			return err
		}
		switch {
		case b[0] == typeHeartbeat && len(b) == 10:
			if b[1] == 1 {
				if !p.receive.first.Swap(true) {
					p.receive.transfers.Add(1)
				}
			}
			if err := s.write(append([]byte{typeEcho}, b[2:]...)); err != nil {
				return err
			}
		case b[0] == typeRecords:
			p.receive.bytes.Add(uint64(len(b) + s.recv.Overhead() + 2))
			if list, err = parseRecords(list[:0], b[1:]); err != nil {
				return err
			}
			p.cfg.Table.Import(list)
			p.receive.records.Add(uint64(len(list)))
		default:
			return fmt.Errorf("%w of type %d", ErrFormat, b[0])
		}
	}
}

// parseRecords reads the records of a message.
func parseRecords(list []datapath.Record, b []byte) ([]datapath.Record, error) {
	for len(b) > 0 {
		r, rest, err := parseRecord(b)
		if err != nil {
			return nil, err
		}
		list, b = append(list, r), rest
	}
	return list, nil
}

// Status is the state of the streams. Counts are since the start.
type Status struct {
	Peer     netip.AddrPort `json:"peer"`
	Sends    bool           `json:"sends"`    // the stream to the peer is up
	Receives bool           `json:"receives"` // the stream from it is up
	Synced   bool           `json:"synced"`   // all connections of the peer have been received once

	SentRecords     uint64  `json:"sent_records"`
	SentBytes       uint64  `json:"sent_bytes"`
	ReceivedRecords uint64  `json:"received_records"`
	ReceivedBytes   uint64  `json:"received_bytes"`
	Transfers       uint64  `json:"transfers"` // of all connections to the peer
	LagSeconds      float64 `json:"lag_seconds"`
}

// Status returns the state of the streams.
func (p *Peer) Status() Status {
	return Status{
		Peer: p.cfg.Peer, Sends: p.send.up.Load(), Receives: p.receive.up.Load(), Synced: p.receive.first.Load(),
		SentRecords: p.send.records.Load(), SentBytes: p.send.bytes.Load(),
		ReceivedRecords: p.receive.records.Load(), ReceivedBytes: p.receive.bytes.Load(),
		Transfers: p.send.transfers.Load(), LagSeconds: time.Duration(p.send.lag.Load()).Seconds(),
	}
}
