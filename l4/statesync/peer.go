package statesync

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
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

	// Inherited is the listener of the process that this one replaces, at the same address; nil: Listen opens one. Listen takes it.
	Inherited net.Listener
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
	pauses   chan pause
	ended    chan struct{} // Run has returned

	send, receive stream
	refused       atomic.Int64 // since when the peer's host refuses the stream to it, ns; 0 while it does not

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
	if cfg.Inherited != nil {
		return newPeer(cfg, cfg.Inherited), nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.Listen.String())
	if err != nil {
		return nil, err
	}
	return newPeer(cfg, l), nil
}

func newPeer(cfg Config, l net.Listener) *Peer {
	p := &Peer{cfg: cfg, listener: l, back: make(chan bool, 1), pauses: make(chan pause), ended: make(chan struct{})}
	p.dial = func(ctx context.Context) (net.Conn, error) {
		dialer := cfg.Dialer
		dialer.Timeout = deadAfter
		return dialer.DialContext(ctx, "tcp", cfg.Peer.String())
	}
	return p
}

// Close closes the listener of a Peer that does not run.
func (p *Peer) Close() error { return p.listener.Close() }

// Run sends and receives until ctx ends, but for the time between Suspend and Resume.
func (p *Peer) Run(ctx context.Context) {
	defer close(p.ended)
	for ctx.Err() == nil {
		running, stop := context.WithCancel(ctx)
		var all sync.WaitGroup
		all.Go(func() { p.sendLoop(running) })
		all.Go(func() { p.acceptLoop(running) })
		var held pause
		select {
		case <-ctx.Done():
			p.listener.Close()
		case held = <-p.pauses:
			p.wakeAccept(time.Unix(1, 0))
		}
		stop()
		all.Wait()
		if held.begun != nil {
			p.leave()
			close(held.begun)
			select {
			case <-held.over:
				p.wakeAccept(time.Time{})
			case <-ctx.Done():
				p.listener.Close()
			}
		}
	}
}

// errSuspended is the cause of streams that end for another process.
var errSuspended = errors.New("another process has the streams")

// leave notes that no stream is left.
func (p *Peer) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.receive.heard.Store(0)
	for _, s := range []struct {
		*stream
		name string
	}{{&p.send, "send"}, {&p.receive, "receive"}} {
		if s.up.Load() {
			p.changed(s.stream, s.name, false, errSuspended)
		}
	}
}

// pause is a request to neither send nor receive: begun is closed when no stream is left, over ends it.
type pause struct {
	begun chan struct{}
	over  chan struct{}
}

// wakeAccept ends calls of Accept with an error, from a time on; the zero time is never. A listener that another process has as well
// cannot be woken by closing it.
func (p *Peer) wakeAccept(from time.Time) {
	if l, ok := p.listener.(*net.TCPListener); ok {
		_ = l.SetDeadline(from) // of a closed one Accept fails by itself
	}
}

// Suspend ends both streams, and accepts none until resume is called. The peer waits for the process that has the listener then.
func (p *Peer) Suspend() (resume func()) {
	held := pause{make(chan struct{}), make(chan struct{})}
	select {
	case p.pauses <- held:
		<-held.begun
	case <-p.ended:
	}
	return sync.OnceFunc(func() { close(held.over) })
}

// File returns a duplicate of the listener for another process.
func (p *Peer) File() (*os.File, error) {
	l, ok := p.listener.(*net.TCPListener)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return l.File()
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
		p.noteRefused(errors.Is(err, syscall.ECONNREFUSED))
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

// noteRefused notes whether the last attempt was refused by the peer's host: it is there, and no gateway listens.
func (p *Peer) noteRefused(refused bool) {
	if !refused {
		p.refused.Store(0)
		return
	}
	p.refused.CompareAndSwap(0, time.Now().UnixNano())
}

// Refused returns for how long the peer's host has refused each attempt to reach it: no gateway runs there. It is 0 for a
// peer that is reached, and for one that does not answer.
func (p *Peer) Refused() time.Duration {
	since := p.refused.Load()
	if since == 0 {
		return 0
	}
	return time.Since(time.Unix(0, since))
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
