package shim

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/millrace/socket"
)

// pairs knows which ends of local connections still exist. The node has no descriptor of them, or closing one would not
// be seen by the other. It has an epoll instance: the kernel removes a file from that when the last descriptor of
// the file is closed, and /proc/self/fdinfo lists the rest. A hang-up says that it is time to look.
type pairs struct {
	on    bool // fdinfo can be read
	watch *watcher
	wake  chan struct{}

	mu   sync.Mutex
	ends map[uint64]*sock // by the number of the watch

	looking sync.Mutex // one sweep at a time
	next    time.Time  // before which sweepNow does not sweep
	sweeps  uint64
}

const (
	sweepPause = 10 * time.Millisecond  // ends that close together are found together
	sweepEvery = 500 * time.Millisecond // both ends may close before the hang-up of the first is reported
	sweepShare = 100                    // a sweep begins no sooner than so many times its own duration after the last
	limitShare = 10                     // the same, for users who have reached a limit
)

func newPairs(direct bool) (*pairs, error) {
	w, err := newWatcher()
	if err != nil {
		return nil, err
	}
	p := &pairs{watch: w, wake: make(chan struct{}, 1), ends: map[uint64]*sock{}}
	_, err = p.alive()
	p.on = direct && err == nil
	return p, nil
}

// add begins to watch the end fd of k. If that fails, k is released: nothing would say that it has ended.
func (p *pairs) add(k *sock, fd int) {
	id, err := p.watch.add(fd, 0, func(uint32) {
		k.endDirect()
		p.look()
	})
	if err != nil {
		k.release(0)
		return
	}
	p.mu.Lock()
	p.ends[id] = k
	p.mu.Unlock()
}

// look makes run sweep soon.
func (p *pairs) look() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run sweeps after hang-ups, and now and then, until ctx ends.
func (p *pairs) run(ctx context.Context) {
	pause := sweepEvery
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
			time.Sleep(sweepPause)
		case <-time.After(pause):
		}
		begin := time.Now()
		p.sweep()
		pause = max(sweepEvery, sweepShare*time.Since(begin))
	}
}

// sweepNow sweeps for a user who has reached a limit. A sweep takes the longer the more ends there are, and requests beyond a limit
// cost a user nothing: all that wait at the same time have one sweep together, and sweeps take a tenth of the time at most.
func (p *pairs) sweepNow() {
	p.looking.Lock()
	pause, before := time.Until(p.next), p.sweeps
	p.looking.Unlock()
	time.Sleep(pause)
	p.looking.Lock()
	defer p.looking.Unlock()
	if p.sweeps == before {
		p.sweepLocked()
	}
}

// sweep releases the ends whose files are gone.
func (p *pairs) sweep() {
	p.looking.Lock()
	defer p.looking.Unlock()
	p.sweepLocked()
}

func (p *pairs) sweepLocked() {
	begin := time.Now()
	p.sweeps++
	defer func() { p.next = time.Now().Add(max(sweepPause, limitShare*time.Since(begin))) }()
	p.mu.Lock()
	known := maps.Clone(p.ends) // before the kernel's list: what is added later is not missing there
	p.mu.Unlock()
	if len(known) == 0 {
		return
	}
	alive, err := p.alive()
	if err != nil {
		return
	}
	for id, k := range known {
		if alive[id] {
			k.countDirect()
			continue
		}
		p.mu.Lock()
		delete(p.ends, id)
		p.mu.Unlock()
		p.watch.forget(id)
		k.release(0)
	}
}

// alive returns the watches whose files exist: the lines "tfd: 12 events: 80000019 data: 1f ..." of fdinfo.
func (p *pairs) alive() (map[uint64]bool, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", p.watch.fd))
	if err != nil {
		return nil, err
	}
	ids := map[uint64]bool{}
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) < 6 || string(f[0]) != "tfd:" || string(f[4]) != "data:" {
			continue
		}
		id, err := strconv.ParseUint(string(f[5]), 16, 64)
		if err != nil {
			return nil, err
		}
		ids[id] = true
	}
	return ids, nil
}

// Pair is one end of a connection between two programs that does not pass through the stack.
type Pair struct {
	Local, Remote netip.AddrPort
	Process       *socket.Process // whose end it is
}

// Pairs returns all ends.
func (s *Server) Pairs() (all []Pair) {
	s.pairs.mu.Lock()
	defer s.pairs.mu.Unlock()
	for _, k := range s.pairs.ends {
		k.mu.Lock()
		end, d := Pair{Local: k.local, Remote: k.remote, Process: k.owner}, k.direct
		k.mu.Unlock()
		if d != nil && d.look(s) {
			of := *end.Process
			of.Tier = 1
			end.Process = &of
		}
		all = append(all, end)
	}
	return all
}
