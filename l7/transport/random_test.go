package transport

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
)

// cycle is the stream that each end sends. Its length is a prime, so that a piece in the wrong place does not match.
var cycle = pattern(65521)

// randomEnd is an end of a connection that reads and writes pieces of random sizes, stops at random and goes on with a
// later tick. It relies on the promises of Conn alone: after less than it asked for, it waits for Ready.
type randomEnd struct {
	r              *rand.Rand
	c              Conn
	left           int // bytes to send
	sent, received int
	mayRead        bool
	mayWrite       bool
	closedWrite    bool
	ended          bool
	waits          bool // for a tick
	loop           *randomLoop
	buf            []byte
	report         func(e *randomEnd, err error) // the end, once
}

// randomLoop goes on with the ends of a loop that have stopped.
type randomLoop struct {
	waiting []*randomEnd
}

func (l *randomLoop) tick(now clock.Time) clock.Time {
	list := l.waiting
	l.waiting = nil
	for _, e := range list {
		if e.waits = false; e.c != nil {
			e.run()
		}
	}
	if len(l.waiting) > 0 {
		return now.Add(200 * time.Microsecond)
	}
	return clock.Never
}

func (e *randomEnd) Ready(c Conn, ev Events) {
	e.c = c
	e.mayRead = e.mayRead || ev&Readable != 0
	e.mayWrite = e.mayWrite || ev&Writable != 0
	if ev&Failed != 0 {
		e.finish(fmt.Errorf("failed: %w", c.Err()))
		return
	}
	e.run()
}

// run does some of what is possible.
func (e *randomEnd) run() {
	for e.c != nil && (e.mayRead || e.mayWrite) {
		switch pick := e.r.IntN(8); {
		case pick == 0:
			if !e.waits {
				e.waits = true
				e.loop.waiting = append(e.loop.waiting, e)
			}
			return
		case pick < 4 && e.mayRead:
			e.read()
		case e.mayWrite:
			e.write()
		}
	}
}

func (e *randomEnd) size() int { return 1 + e.r.IntN(1<<e.r.IntN(17)) }

func (e *randomEnd) read() {
	size := e.size()
	n, err := e.c.Read(e.buf[:size])
	if !bytes.Equal(e.buf[:n], at(e.received, n)) {
		e.finish(fmt.Errorf("other bytes at %d", e.received))
		return
	}
	e.received += n
	switch {
	case err == io.EOF:
		e.mayRead, e.ended = false, true
		e.check()
	case err == ErrAgain || err == nil && n < size:
		e.mayRead = false
	case err != nil:
		e.finish(err)
	}
}

func (e *randomEnd) write() {
	p := at(e.sent, min(e.left, e.size()))
	n, err := e.c.Write(p)
	e.sent, e.left = e.sent+n, e.left-n
	switch {
	case err != nil && err != ErrAgain:
		e.finish(err)
	case n < len(p):
		e.mayWrite = false
	case e.left == 0:
		e.mayWrite, e.closedWrite = false, true
		if err := e.c.CloseWrite(); err != nil {
			e.finish(err)
			return
		}
		e.check()
	}
}

// check closes a connection of which both directions have ended.
func (e *randomEnd) check() {
	if e.ended && e.closedWrite {
		e.finish(nil)
	}
}

func (e *randomEnd) finish(err error) {
	e.c.Close()
	e.c = nil
	e.report(e, err)
}

// at returns n bytes of the stream from an offset on; n is less than the cycle.
func at(offset, n int) []byte {
	offset %= len(cycle)
	if offset+n <= len(cycle) {
		return cycle[offset : offset+n]
	}
	return slices.Concat(cycle[offset:], cycle[:offset+n-len(cycle)])
}

// randomTraffic runs connections between the client and the servers of w, and checks that all bytes arrive.
func randomTraffic(w *world, seed uint64, conns int) {
	type result struct {
		received int
		err      error
	}
	results := make(chan result, 2*conns)
	report := func(e *randomEnd, err error) { results <- result{e.received, err} }
	loops := map[Loop]*randomLoop{}
	for _, l := range append([]Loop{w.client}, w.servers...) {
		x := &randomLoop{}
		loops[l] = x
		w.on(l, func() { l.SetTick(x.tick) })
	}
	most := 1 + int(seed%7)*100_000
	var n atomic.Uint64
	sent := make(chan int, 2*conns)
	newEnd := func(loop Loop) *randomEnd {
		r := rand.New(rand.NewPCG(seed, n.Add(1)))
		left := 1 + r.IntN(most)
		sent <- left
		return &randomEnd{r: r, left: left, loop: loops[loop], buf: make([]byte, 1<<17), report: report}
	}
	to, list := w.listen(func(c Conn) Handler {
		e := newEnd(loopOf(c))
		e.mayWrite = true
		e.Ready(c, Writable)
		return e
	})
	for range conns {
		w.dial(to, newEnd(w.client))
	}
	total := 0
	for range 2 * conns {
		r := next(w, results, fmt.Sprintf("random traffic of seed %d", seed))
		if total += r.received; r.err != nil {
			w.t.Errorf("seed %d: after %d bytes: %v", seed, r.received, r.err)
		}
	}
	for range 2 * conns {
		total -= <-sent
	}
	if total != 0 {
		w.t.Errorf("seed %d: received %d bytes more than sent", seed, total)
	}
	for i, li := range list {
		w.on(w.servers[i], li.Close)
	}
}

func TestRandomTraffic(t *testing.T) {
	inEachWorld(t, func(t *testing.T, w *world) {
		for seed := range uint64(4) {
			randomTraffic(w, seed, 20)
		}
	})
}

// FuzzTraffic looks for orders of reads and writes that lose bytes or wait for ever.
func FuzzTraffic(f *testing.F) {
	w := []*world{worlds[0].open(f), worlds[2].open(f)}
	f.Add(uint64(6), uint8(3))
	f.Fuzz(func(t *testing.T, seed uint64, conns uint8) {
		for _, w := range w {
			x := *w
			x.t = t
			randomTraffic(&x, seed, 1+int(conns%8))
		}
	})
}
