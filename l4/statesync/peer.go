package statesync

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/l4/datapath"
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

// Config configures a Peer.
type Config struct {
	Listen, Peer netip.AddrPort
	Key          []byte // 32 bytes
	Agreement    Agreement
	Table        Table
	Dialer       net.Dialer
	OnChange     func(Event) // of a stream; one call at a time; may be nil
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
	dial     func(context.Context) (net.Conn, error)
	back     chan bool // the peer has dialed: it can be dialed too

	send, receive stream

	mu      sync.Mutex // guards current and what was reported; held during OnChange
	current *received
}

// received is a stream of the peer. One at a time enters records.
type received struct {
	conn  net.Conn
	ended chan struct{} // closed when it enters no more
}

// stream is the counts of one direction.
type stream struct {
	up                        atomic.Bool
	records, bytes, transfers atomic.Uint64
	lag                       atomic.Int64 // of the last heartbeat, ns
	heard                     atomic.Int64 // received: when the last frame came, ns; 0 while the peer has not sent all connections on this stream
	first                     atomic.Bool  // received: the first full transfer is complete; sent: no transfer is under way

	cause    string // that was reported last, since the stream was up
	reported time.Time
}

// Listen opens the listener. Run serves it.
func Listen(ctx context.Context, cfg Config) (*Peer, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.Listen.String())
	if err != nil {
		return nil, err
	}
	return newPeer(cfg, l), nil
}

func newPeer(cfg Config, l net.Listener) *Peer {
	p := &Peer{cfg: cfg, listener: l, back: make(chan bool, 1)}
	p.dial = func(ctx context.Context) (net.Conn, error) {
		dialer := cfg.Dialer
		dialer.Timeout = deadAfter
		return dialer.DialContext(ctx, "tcp", cfg.Peer.String())
	}
	return p
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
	all.Wait()
}

// reportEvery is the least time between reports of attempts that failed for different reasons.
const reportEvery = time.Second

// changed reports that a stream came up or went down. Attempts that fail one after the other are reported once for
// each reason, and at a bounded rate. The caller holds p.mu.
func (p *Peer) changed(s *stream, name string, up bool, cause error) {
	was := s.up.Swap(up)
	switch {
	case up && was:
		return
	case up:
		s.cause = ""
	default:
		text, now := reason(cause), time.Now()
		if !was && (text == s.cause || s.cause != "" && now.Sub(s.reported) < reportEvery) {
			return
		}
		s.cause, s.reported = text, now
	}
	if p.cfg.OnChange != nil {
		p.cfg.OnChange(Event{name, up, cause})
	}
}

// reason is the text of an error without the ports of its connection, which are others each time.
func reason(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Op + ": " + op.Err.Error()
	}
	return err.Error()
}

// Times between attempts to reach the peer.
const (
	redialFirst = 100 * time.Millisecond
	redialLast  = 2 * time.Second
)

// sendLoop dials the peer again and again and sends connections. Changes meanwhile are thrown away: the full transfer
// at the start of each stream covers them.
func (p *Peer) sendLoop(ctx context.Context) {
	for pause := redialFirst; ctx.Err() == nil; {
		lived, err := p.sendTo(ctx)
		if ctx.Err() != nil {
			return
		}
		p.mu.Lock()
		failed := !p.send.up.Load()
		p.changed(&p.send, "send", false, err)
		p.mu.Unlock()
		pause = pauseAfter(pause, lived)
		if p.discard(ctx, pause, failed) {
			pause = redialFirst
		} else {
			pause = min(2*pause, redialLast)
		}
	}
}

// pauseAfter returns the pause before the next attempt: the one that is due, or the first again after a stream that was of
// use. One that breaks at once is none, so that the pauses grow.
func pauseAfter(due, lived time.Duration) time.Duration {
	if lived > deadAfter {
		return redialFirst
	}
	return due
}

// discard throws changes away for a pause. If the peer could not be reached, the pause ends when it dials, and discard
// returns true.
func (p *Peer) discard(ctx context.Context, pause time.Duration, failed bool) bool {
	end, tick := time.After(pause), time.NewTicker(flushEvery)
	defer tick.Stop()
	back := p.back
	if !failed {
		back = nil // it can be reached, and hangs up: two such peers would dial each other without end
	}
	for {
		p.cfg.Table.Changes(func(*datapath.Record) bool { return true })
		select {
		case <-ctx.Done():
			return false
		case <-back:
			return true
		case <-end:
			return false
		case <-tick.C:
		}
	}
}

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
			s, err := newSession(conn, p.cfg.Key, false, version)
			if err == nil {
				err = s.agree(p.cfg.Agreement)
			}
			if err != nil {
				<-slots
				p.failed(ctx, err)
				return
			}
			r := p.begin(conn)
			<-slots
			select {
			case p.back <- true:
			default:
			}
			p.end(ctx, r, p.receiveFrom(s))
		})
	}
}

// begin makes a stream the one that is received. The one before ends first: its records are older.
func (p *Peer) begin(conn net.Conn) *received {
	r := &received{conn, make(chan struct{})}
	p.mu.Lock()
	before := p.current
	p.current = r
	p.mu.Unlock()
	if before != nil {
		before.conn.Close()
		<-before.ended
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == r {
		p.changed(&p.receive, "receive", true, nil)
	}
	return r
}

// end ends a stream. If another has replaced it, the peer is not gone.
func (p *Peer) end(ctx context.Context, r *received, cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(r.ended)
	if p.current == r {
		p.current = nil
		if ctx.Err() == nil {
			p.changed(&p.receive, "receive", false, cause)
		}
	}
}

// failed reports a handshake that failed, unless the peer is received: then it was not the peer's.
func (p *Peer) failed(ctx context.Context, cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil && ctx.Err() == nil {
		p.changed(&p.receive, "receive", false, cause)
	}
}

// receiveFrom enters what a stream brings.
func (p *Peer) receiveFrom(s *session) error {
	var list []datapath.Record
	defer p.receive.heard.Store(0)
	for {
		b, err := s.read()
		if err != nil {
			return err
		}
		if p.receive.heard.Load() != 0 {
			p.receive.heard.Store(time.Now().UnixNano())
		}
		switch {
		case b[0] == typeHeartbeat && len(b) == 10:
			if b[1] == 1 {
				if !p.receive.first.Swap(true) {
					p.receive.transfers.Add(1)
				}
				p.receive.heard.Store(time.Now().UnixNano())
			} else {
				p.receive.heard.Store(0) // changes were lost, and all connections come again
			}
			if err := s.write(append([]byte{typeEcho}, b[2:]...)); err != nil {
				return err
			}
		case b[0] == typeRecords:
			p.receive.bytes.Add(uint64(len(b) + s.recv.Overhead() + 2))
			if list, err = parseRecords(list[:0], b[1:], s.version); err != nil {
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
func parseRecords(list []datapath.Record, b []byte, version byte) ([]datapath.Record, error) {
	for len(b) > 0 {
		r, rest, err := parseRecord(b, version)
		if err != nil {
			return nil, err
		}
		list, b = append(list, r), rest
	}
	return list, nil
}

// lateAfter is the time that a peer in step may be silent: two heartbeats.
const lateAfter = 2 * heartbeatEvery

// InStep reports whether all connections of the peer are here: it has sent all on the present stream, and is heard.
func (p *Peer) InStep() bool {
	heard := p.receive.heard.Load()
	return heard != 0 && time.Since(time.Unix(0, heard)) < lateAfter
}

// Status is the state of the streams. Counts are since the start.
type Status struct {
	Peer     netip.AddrPort `json:"peer"`
	Sends    bool           `json:"sends"`    // the stream to the peer is up
	Receives bool           `json:"receives"` // the stream from it is up
	InStep   bool           `json:"in_step"`  // all connections of the peer are here now, but for changes of the last milliseconds
	Synced   bool           `json:"synced"`   // all connections of the peer have been received once
	Shared   bool           `json:"shared"`   // the peer has been sent all connections, and the stream to it is up

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
		Peer: p.cfg.Peer, Sends: p.send.up.Load(), Receives: p.receive.up.Load(), InStep: p.InStep(), Synced: p.receive.first.Load(),
		Shared:      p.send.up.Load() && p.send.first.Load(),
		SentRecords: p.send.records.Load(), SentBytes: p.send.bytes.Load(),
		ReceivedRecords: p.receive.records.Load(), ReceivedBytes: p.receive.bytes.Load(),
		Transfers: p.send.transfers.Load(), LagSeconds: time.Duration(p.send.lag.Load()).Seconds(),
	}
}
