package control

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/l4/statesync"
)

// syncTable is the connections of all loops, as the peer's streams use them.
type syncTable struct {
	g   *Gateway
	now func() clock.Time
	on  func(loop int, f func()) bool

	changed []datapath.ConnCopy // of Changes, which the sending goroutine calls, as Page
	page    []datapath.ConnCopy
	lost    uint64 // changes that were dropped, as seen by the last Changes

	directory *datapath.Directory // of Import
	byLoop    [][]datapath.ConnCopy
	outcomes  [datapath.RecordOutcomes]atomic.Uint64
}

// syncBurst is the number of changes that are taken from a loop at once.
const syncBurst = 256

// outcomeNames are the outcomes of records in status and metrics.
var outcomeNames = [datapath.RecordOutcomes]string{
	datapath.RecordEntered: "entered", datapath.RecordUpdated: "updated", datapath.RecordStale: "stale",
	datapath.RecordConflict: "conflict", datapath.RecordNoRoom: "no_room", datapath.RecordUnknown: "unknown",
}

// SyncStatus is the state of the other gateway.
type SyncStatus struct {
	statesync.Status
	Waiting  bool              `json:"waiting"`          // since the start, for the first transfer: nothing is announced, unknown segments are not reset
	Holds    bool              `json:"holds_resets"`     // unknown segments are not reset: the peer is awaited, or out of reach
	Dropped  uint64            `json:"dropped_changes"`  // that came faster than they were sent; all connections are sent again then
	Outcomes map[string]uint64 `json:"received_results"` // what became of received records
}

// openSync listens for the peer, if the configuration has one.
func (g *Gateway) openSync(c *config.Config) (err error) {
	g.peerAwaited = make(chan struct{})
	if c.Sync == nil {
		close(g.peerAwaited)
		return nil
	}
	for _, h := range g.handlers {
		h.SyncChanges()
	}
	g.synced = &syncTable{g: g, changed: make([]datapath.ConnCopy, syncBurst), byLoop: make([][]datapath.ConnCopy, len(g.handlers))}
	g.peer, err = statesync.Listen(context.Background(), statesync.Config{
		Listen: c.Sync.Listen, Peer: c.Sync.Peer, Key: c.Sync.Key, Table: g.synced, OnChange: g.opt.OnPeer, Inherited: g.opt.SyncListener,
		Agreement: statesync.Agreement{
			Index: uint8(c.Sync.Index), Loops: uint16(len(g.handlers)), First: c.SNATPorts.First, Last: c.SNATPorts.Last,
		},
	})
	return err
}

// peerAwaited is the time that a gateway waits after its start for all connections of its peer. Until they are here it
// announces no address, and drops segments of unknown connections that it would reset.
const peerAwaited = 5 * time.Second

// Sync sends connections to the other gateway and receives its, until ctx ends; without one it returns at once. on is
// that of Connections.
func (g *Gateway) Sync(ctx context.Context, now func() clock.Time, on func(loop int, f func()) bool) {
	if g.peer == nil {
		return
	}
	g.synced.now, g.synced.on = now, on
	var all sync.WaitGroup
	all.Go(func() { g.followPeer(ctx) })
	g.peer.Run(ctx)
	all.Wait()
}

// PeerAwaited returns a channel that is closed when all connections of the peer are here, or have been awaited for long
// enough. Without a peer it is closed. Sync closes it.
func (g *Gateway) PeerAwaited() <-chan struct{} { return g.peerAwaited }

// peerState is the state of a gateway with its peer. It decides whether segments of unknown connections are reset: not while
// the peer may have connections that are not here.
type peerState uint8

const (
	peerAwaiting peerState = iota // since the start: for all connections of the peer
	peerAbsent                    // it has not been in step since the start, and addresses are announced without it
	peerInStep                    // all its connections are here
	peerLost                      // it was in step, and is not heard or sends all again
	peerGone                      // absent, and no gateway is there, or its connections are too old
)

// holds reports whether segments of unknown connections are dropped, not reset. A peer that is out of reach may still serve:
// the network between the gateways fails alone, and its connections may come here by a change of routes. After a restart
// this gateway does not know whether it has one, so that a peer which has not been in step since counts as well, until it is
// gone.
func (s peerState) holds() bool { return s != peerInStep && s != peerGone }

// next returns the state that follows: whether the peer is in step, and whether it is awaited no longer.
func (s peerState) next(inStep, timeUp bool) peerState {
	switch {
	case inStep:
		return peerInStep
	case s == peerInStep:
		return peerLost
	case s == peerAwaiting && timeUp:
		return peerAbsent
	}
	return s
}

// gone reports whether a peer that has not been in step since the start has no connections that may come here. Its host
// has refused the stream for some time, so no gateway runs there: what one had is lost. Or it has been out of reach for as
// long as an idle connection is remembered (table.tcp.established): a peer that does not exist holds resets no longer.
func (g *Gateway) gone(since time.Duration) bool {
	g.mu.Lock()
	idle := g.cfg.Table.TCPEstablished
	g.mu.Unlock()
	return g.peer.Refused() > peerAwaited || since > idle
}

// followPeer follows the state of the peer until ctx ends.
func (g *Gateway) followPeer(ctx context.Context) {
	tick := time.NewTicker(peerEvery)
	defer tick.Stop()
	state, start := peerAwaiting, time.Now()
	for {
		was, since := state, time.Since(start)
		if state = state.next(g.peer.InStep(), since > peerAwaited); state == peerAbsent && g.gone(since) {
			state = peerGone
		}
		if state != was {
			g.peerChanged(was, state)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// peerEvery is the interval at which the state of the peer is checked.
const peerEvery = 20 * time.Millisecond

// peerChanged has the loops hold resets or not.
func (g *Gateway) peerChanged(was, state peerState) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := *g.snap.Load(); s.HoldResets != state.holds() {
		s.HoldResets = state.holds()
		g.snap.Store(&s)
	}
	if was == peerAwaiting {
		close(g.peerAwaited)
	}
}

// waiting reports whether the peer is still awaited since the start.
func (g *Gateway) waiting() bool {
	select {
	case <-g.peerAwaited:
		return false
	default:
		return true
	}
}

// Changes implements statesync.Table.
func (t *syncTable) Changes(yield func(*datapath.Record) bool) (lost bool) {
	dropped := uint64(0)
	for _, h := range t.g.handlers {
		for more := true; more; {
			n := h.Changes(t.changed)
			more = n == len(t.changed)
			more = t.yield(t.changed[:n], yield) && more
		}
		dropped += h.DroppedChanges()
	}
	lost = dropped != t.lost
	t.lost = dropped
	return lost
}

// yield passes connections on as records.
func (t *syncTable) yield(list []datapath.ConnCopy, yield func(*datapath.Record) bool) bool {
	s, now := t.g.snap.Load(), t.now() // not older than the connections
	for i := range list {
		if r, ok := s.Record(&list[i], now); ok && !yield(&r) {
			return false
		}
	}
	return true
}

// Page implements statesync.Table. A place is a loop's number and one of its table.
func (t *syncTable) Page(at int64, yield func(*datapath.Record)) int64 {
	loop, place := int(at>>32), int(uint32(at))
	if loop >= len(t.g.handlers) {
		return -1
	}
	more := false
	if !t.on(loop, func() { t.page, place, more = t.g.handlers[loop].Conns(t.page[:0], place) }) {
		return -1
	}
	t.yield(t.page, func(r *datapath.Record) bool { yield(r); return true })
	if more {
		return int64(loop)<<32 | int64(place)
	}
	return int64(loop+1) << 32
}

// Import implements statesync.Table.
func (t *syncTable) Import(list []datapath.Record) {
	s := t.g.snap.Load()
	if t.directory == nil || t.directory.Round != s.Round || t.directory.Era != s.Era {
		t.directory = datapath.NewDirectory(s, len(t.g.handlers), datapath.PortRange(t.g.ports))
	}
	for i := range list {
		if c, loop, ok := t.directory.Conn(&list[i]); ok {
			t.byLoop[loop] = append(t.byLoop[loop], c)
		} else {
			t.outcomes[datapath.RecordUnknown].Add(1)
		}
	}
	for loop, conns := range t.byLoop {
		if len(conns) == 0 {
			continue
		}
		var outcomes [datapath.RecordOutcomes]uint64
		t.on(loop, func() { t.g.handlers[loop].Import(t.now(), conns, &outcomes) })
		for i, n := range outcomes {
			t.outcomes[i].Add(n)
		}
		t.byLoop[loop] = conns[:0]
	}
}

// SyncFile returns a duplicate of the socket at which the other gateway is received, for the process that replaces this one; nil without
// another gateway.
func (g *Gateway) SyncFile() (*os.File, error) {
	if g.peer == nil {
		return nil, nil
	}
	return g.peer.File()
}

// SuspendSync ends the exchange of connections until resume is called: another process has the socket.
func (g *Gateway) SuspendSync() (resume func()) {
	if g.peer == nil {
		return func() {}
	}
	return g.peer.Suspend()
}

// SyncStreams reports whether a stream to or from the other gateway is up, and whether all its connections are here.
func (g *Gateway) SyncStreams() (up, synced bool) {
	if g.peer == nil {
		return false, false
	}
	st := g.peer.Status()
	return st.Sends || st.Receives, st.InStep
}

// syncStatus returns the state of the other gateway, nil without one.
func (g *Gateway) syncStatus() *SyncStatus {
	if g.peer == nil {
		return nil
	}
	st := &SyncStatus{Status: g.peer.Status(), Waiting: g.waiting(), Holds: g.snap.Load().HoldResets, Outcomes: map[string]uint64{}}
	for _, h := range g.handlers {
		st.Dropped += h.DroppedChanges()
	}
	for i, name := range outcomeNames {
		st.Outcomes[name] = g.synced.outcomes[i].Load()
	}
	return st
}
