package replay

import (
	"cmp"
	"slices"
	"sync"

	"github.com/millrace/millrace/filter/inspect"
)

// shards shares packets out over engines, each on a goroutine of its own, by the hosts that they are between. The packets of some
// thousand records are a round: engines work on several rounds at the same time, each on its part, and the alerts of a round
// are put in the order of their packets, counted for thresholds, and written. What comes out depends on no timing, but for
// rules with bits of addresses (inspect.HostBits).
type shards struct {
	of      *Inspection
	parts   []chan *round // by engine
	order   chan *round
	free    chan *round
	filling *round
	working sync.WaitGroup
	written chan struct{}
}

// round is a part of the packets of a capture.
type round struct {
	shares []share
	bytes  int
	last   int64 // time of the last packet
	ends   bool  // flows end behind it
	done   sync.WaitGroup
}

// share is the part of a round that one engine has.
type share struct {
	frames  []byte
	records []shardPacket
	alerts  []found
	stats   inspect.Stats // of an engine that has ended
}

// shardPacket is a packet of a share.
type shardPacket struct {
	now    int64
	number uint64
	at     int // in frames
	path   string
	before uint64
}

// The bounds of a round.
const (
	roundBytes   = 4 << 20
	roundRecords = 16 << 10
)

// roundsInFlight returns how many rounds there are at the same time. They bound memory; engines that have little to do in one
// round go on with the next ones, for which 16 engines need more than six rounds.
func roundsInFlight(engines int) int { return max(6, engines) }

func newShards(of *Inspection, engines int) *shards {
	rounds := roundsInFlight(engines)
	s := &shards{of: of, order: make(chan *round, rounds), free: make(chan *round, rounds), written: make(chan struct{})}
	for range rounds {
		s.free <- &round{shares: make([]share, engines)}
	}
	cfg := of.Config
	cfg.LeaveThresholds, cfg.HostBits = true, inspect.NewHostBits(&sync.Mutex{})
	for i := range engines {
		in := make(chan *round, rounds)
		s.parts = append(s.parts, in)
		s.working.Go(func() {
			w := shard{rules: of.Rules, cfg: cfg}
			for r := range in {
				w.inspect(&r.shares[i], r)
				r.done.Done()
			}
		})
	}
	go s.write()
	return s
}

func (s *shards) packet(src *reading, now int64, frame []byte) {
	r := s.round()
	part := &r.shares[inspect.Shard(frame)%uint64(len(r.shares))]
	part.records = append(part.records, shardPacket{now, src.number, len(part.frames), src.path, src.before})
	part.frames = append(part.frames, frame...)
	r.last = now
	if r.bytes += len(frame) + roundBytes/roundRecords; r.bytes >= roundBytes {
		s.send()
	}
}

// round returns the round that is being filled.
func (s *shards) round() *round {
	if s.filling == nil {
		s.filling = <-s.free
	}
	return s.filling
}

// send gives the round to the engines.
func (s *shards) send() {
	r := s.filling
	s.filling = nil
	r.done.Add(len(s.parts))
	for _, in := range s.parts {
		in <- r
	}
	s.order <- r
}

func (s *shards) end() {
	s.round().ends = true
	s.send()
}

func (s *shards) close() {
	for _, in := range s.parts {
		close(in)
	}
	s.working.Wait()
	close(s.order)
	<-s.written
}

// write writes the alerts of each round, in order.
func (s *shards) write() {
	defer close(s.written)
	thresholds := inspect.NewThresholds()
	var all []*found
	for r := range s.order {
		r.done.Wait()
		all = all[:0]
		for i := range r.shares {
			for k := range r.shares[i].alerts {
				all = append(all, &r.shares[i].alerts[k])
			}
			s.of.add(r.shares[i].stats)
		}
		slices.SortStableFunc(all, order)
		for _, a := range all {
			switch {
			case !thresholds.Detects(&a.Alert): // no match yet
			case thresholds.Passes(&a.Alert):
				s.of.write(a)
			default:
				s.of.Stats.Suppressed++
			}
		}
		if r.ends {
			thresholds = inspect.NewThresholds()
		}
		for i := range r.shares {
			p := &r.shares[i]
			clear(p.alerts) // rules and texts
			*p = share{frames: p.frames[:0], records: p.records[:0], alerts: p.alerts[:0]}
		}
		r.bytes, r.ends = 0, false
		s.free <- r
	}
}

// order is that of the packets, and that of the flows that end with the captures. The alerts of one packet come from one engine.
func order(a, b *found) int {
	if a.at == atEnd && b.at == atEnd {
		return cmp.Compare(a.Flow, b.Flow)
	}
	return cmp.Compare(a.at, b.at)
}

// shard inspects the packets that one engine has.
type shard struct {
	rules  *inspect.Rules
	cfg    inspect.Config
	engine *inspect.Engine // nil until a packet comes
	at     shardPacket     // the packet that is inspected
	alerts []found
}

// atEnd is the place of the alerts of flows that end with the captures: behind all packets.
const atEnd = ^uint64(0)

func (w *shard) inspect(p *share, r *round) {
	w.alerts = p.alerts
	if w.engine == nil {
		w.engine = inspect.New(w.rules, w.cfg, func(a *inspect.Alert) {
			w.alerts = append(w.alerts, found{*a, printable(a.Payload), w.at.number, w.at.path, w.at.before})
			w.alerts[len(w.alerts)-1].Payload = nil // borrowed
		})
	}
	for i, rec := range p.records {
		end := len(p.frames)
		if i+1 < len(p.records) {
			end = p.records[i+1].at
		}
		w.at = rec
		w.engine.Inspect(&inspect.Input{Now: rec.now, Frame: p.frames[rec.at:end:end], Number: rec.number})
	}
	if r.ends {
		w.at.number = atEnd
		w.engine.Expire(r.last, 0) // the end is that of all packets
		w.engine.Flush()
		p.stats = w.engine.Stats()
		w.engine = nil
	}
	p.alerts = w.alerts
}
