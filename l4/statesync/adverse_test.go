package statesync

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/l4/datapath"
)

// model is a gateway's table whose data path changes connections at a pace, whatever the peer does. Its queue of changes
// is as long as a loop's.
type model struct {
	mu       sync.Mutex
	conns    []datapath.Record // in the order of the table
	queue    []datapath.Record
	most     int  // that queue ever was
	lost     bool // since the last Changes
	rng      *rand.Rand
	importMu sync.Mutex
	received map[netip.AddrPort]datapath.Record
	pause    time.Duration // of each Import
	overlap  bool          // two Imports ran at once
}

const modelQueue = 8192

func newModel(conns int) *model {
	m := &model{rng: rand.New(rand.NewPCG(3, 4)), received: map[netip.AddrPort]datapath.Record{}}
	for i := range conns {
		m.conns = append(m.conns, record(i))
	}
	return m
}

// run is the data path: so many changes each millisecond, until ctx ends.
func (m *model) run(ctx context.Context, changes int) {
	for ctx.Err() == nil {
		time.Sleep(time.Millisecond)
		m.mu.Lock()
		for range changes {
			c := &m.conns[m.rng.IntN(len(m.conns))]
			if c.State = datapath.RecordState(2 + m.rng.IntN(5)); len(m.queue) == modelQueue {
				m.lost = true
				continue
			}
			m.queue = append(m.queue, *c)
		}
		m.most = max(m.most, len(m.queue))
		m.mu.Unlock()
	}
}

func (m *model) Changes(yield func(*datapath.Record) bool) bool {
	for {
		m.mu.Lock()
		n := min(len(m.queue), 256)
		part := append([]datapath.Record(nil), m.queue[:n]...)
		m.queue = append(m.queue[:0], m.queue[n:]...)
		m.mu.Unlock()
		for i := range part { // without the lock, as a ring
			if !yield(&part[i]) {
				return false
			}
		}
		if n < 256 {
			break
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	lost := m.lost
	m.lost = false
	return lost
}

func (m *model) Page(at int64, yield func(*datapath.Record)) int64 {
	m.mu.Lock()
	end := min(int(at)+1024, len(m.conns))
	part := append([]datapath.Record(nil), m.conns[at:end]...)
	m.mu.Unlock()
	for i := range part {
		yield(&part[i])
	}
	if end == len(m.conns) {
		return -1
	}
	return int64(end)
}

func (m *model) Import(list []datapath.Record) {
	if !m.importMu.TryLock() {
		m.overlap = true
		m.importMu.Lock()
	}
	defer m.importMu.Unlock()
	time.Sleep(m.pause)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range list {
		m.received[r.Client] = r
	}
}

// sameAt returns how many connections another gateway does not know as they are here.
func (m *model) sameAt(o *model) (wrong int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range m.conns {
		if o.received[c.Client] != c {
			wrong++
		}
	}
	return wrong
}

// Whatever the network does, the data path goes on, what waits is bounded, what is reported is bounded, and when it is
// over the peer knows every connection as it is.
func TestStateConvergesAfterABadNetwork(t *testing.T) {
	for _, c := range []struct {
		name    string
		conns   int
		changes int // each millisecond
		bad     func(n *network)
		lasts   time.Duration // then the network is good
		within  time.Duration
		events  int // at most, of each side
		breaks  bool
	}{
		{name: "good", conns: 5000, changes: 5, lasts: time.Second, within: time.Second, events: 2},
		{name: "5 % loss, 200 ms", conns: 5000, changes: 1, bad: func(n *network) { n.delay, n.loss = 100*time.Millisecond, 0.05 }, lasts: 20 * time.Second, within: 20 * time.Second, events: 30},
		{name: "cut for 3 s", conns: 5000, changes: 5, bad: func(n *network) { n.cut = true }, lasts: 3 * time.Second, within: 20 * time.Second, events: 6},
		{name: "cut for a minute", conns: 5000, changes: 5, bad: func(n *network) { n.cut = true }, lasts: time.Minute, within: 20 * time.Second, events: 10, breaks: true},
		{name: "faster than the network", conns: 5000, changes: 40, bad: func(n *network) { n.rate = 500_000 }, lasts: 10 * time.Second, within: 10 * time.Second, events: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, tables := newNetwork(), [2]*model{newModel(c.conns), newModel(c.conns)}
				a, b := n.start(t, 0, tables[0]), n.start(t, 1, tables[1])
				ctx, stop := context.WithCancel(t.Context())
				var data sync.WaitGroup
				for _, m := range tables {
					data.Go(func() { m.run(ctx, c.changes) })
				}
				soon(t, "both are in step", 20*time.Second, func() bool { return a.Status().Synced && b.Status().Synced })
				if c.bad != nil {
					n.set(c.bad)
				}
				time.Sleep(c.lasts)
				stop()
				data.Wait()
				n.set(func(n *network) { n.delay, n.loss, n.rate, n.cut = time.Millisecond, 0, 0, false })
				soon(t, "the tables agree", c.within, func() bool { return tables[0].sameAt(tables[1])+tables[1].sameAt(tables[0]) == 0 })
				for i, p := range []*virtualPeer{a, b} {
					if got := p.reported(); got > c.events || c.breaks && got < 4 {
						t.Errorf("gateway %d reports %d times: %v", i, got, p.events)
					}
					if tables[i].most > modelQueue || tables[i].overlap {
						t.Errorf("gateway %d: %+v", i, tables[i].most)
					}
				}
				n.expectBounded(t)
			})
		})
	}
}

// A transfer of all connections that takes longer than the peer may be silent reaches its end, and changes do not wait
// behind it.
func TestATransferOverASlowNetworkEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, from, to := newNetwork(), newModel(30_000), newModel(1)
		n.rate, n.delay = 60_000, 50*time.Millisecond // 1.1 MB take 18 s
		a, b := n.start(t, 0, from), n.start(t, 1, to)
		soon(t, "a transfer", time.Minute, func() bool { return b.Status().Synced })
		if from.sameAt(to) != 0 || a.reported() != 2 || b.reported() != 2 {
			t.Errorf("%d connections are missing; %v, %v", from.sameAt(to), a.events, b.events)
		}
	})
}

// Changes that are lost during a transfer may be of connections that it has passed: all are sent again.
func TestChangesLostDuringATransferAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, from, to := newNetwork(), newModel(20_000), newModel(1)
		n.rate = 300_000
		n.start(t, 0, from)
		b := n.start(t, 1, to)
		soon(t, "a part", time.Minute, func() bool { return b.Status().ReceivedRecords > 10_000 })
		from.mu.Lock()
		from.conns[0].State, from.lost = datapath.RecordReset, true
		from.mu.Unlock()
		soon(t, "all connections as they are", time.Minute, func() bool { return from.sameAt(to) == 0 })
	})
}

// A peer that is started again in the middle of a transfer gets all of it, from the start.
func TestAPeerIsStartedAgainDuringATransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, from, to := newNetwork(), newModel(40_000), newModel(1)
		n.rate = 1_000_000
		n.start(t, 0, from)
		b := n.start(t, 1, to)
		soon(t, "a part", time.Minute, func() bool { return b.Status().ReceivedRecords > 10_000 })
		b.stop()
		to = newModel(1)
		b = n.start(t, 1, to)
		soon(t, "all", 10*time.Second, func() bool { return b.Status().Synced })
		if wrong := from.sameAt(to); wrong != 0 {
			t.Errorf("%d connections are missing", wrong)
		}
	})
}

// stalled serves the listener of host 1 as a peer that agrees and then does not read, or does not answer.
func (n *network) stalled(t *testing.T, l *listener, reads bool) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			s, err := newSession(c, testKey(1), false, version)
			if err == nil {
				err = s.agree(Agreement{Index: 1, Loops: 2, First: 1024, Last: 65535})
			}
			if err != nil {
				return
			}
			for reads && err == nil {
				_, err = s.read()
			}
			<-t.Context().Done()
		}()
	}
}

// A peer that agrees and then stalls, without closing, is left and tried again, with a bounded number of attempts and
// reports; the data path goes on, and a peer that works gets everything.
func TestAPeerThatStallsIsLeft(t *testing.T) {
	for _, reads := range []bool{false, true} {
		t.Run(fmt.Sprint("reads ", reads), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, from, to := newNetwork(), newModel(20_000), newModel(1)
				l := n.listen(hosts[1])
				go n.stalled(t, l, reads)
				a := n.start(t, 0, from)
				ctx, stop := context.WithCancel(t.Context())
				go from.run(ctx, 5)
				time.Sleep(2 * time.Minute)
				stop()
				if got, most := a.reported(), 2*(2*60/3); got < 4 || got > most || n.dials > most {
					t.Errorf("%d reports of %d attempts in 2 minutes", got, n.dials)
				}
				l.Close()
				n.start(t, 1, to)
				soon(t, "all", 10*time.Second, func() bool { return from.sameAt(to) == 0 })
				n.expectBounded(t)
			})
		})
	}
}

// A peer whose host dies without a word and comes back is served again: the old stream does not keep it out.
func TestAHalfOpenStreamIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, from, to := newNetwork(), newModel(2000), newModel(1)
		a, b := n.start(t, 0, from), n.start(t, 1, to)
		soon(t, "both are in step", 10*time.Second, func() bool { return a.Status().Synced && b.Status().Synced })
		n.set(func(n *network) { n.cut = true })
		b.stop() // its last words are lost
		n.set(func(n *network) {
			for _, c := range n.conns {
				if c.closed {
					c.peer.queue, c.peer.size = nil, 0
				}
			}
			n.cut = false
		})
		to = newModel(1)
		b = n.start(t, 1, to)
		soon(t, "all", 10*time.Second, func() bool { return b.Status().Synced && from.sameAt(to) == 0 })
		soon(t, "the new stream counts", 5*time.Second, func() bool { return a.Status().Receives && a.Status().Sends })
		time.Sleep(time.Minute)
		if !a.Status().Receives || !a.Status().Sends {
			t.Errorf("%+v", a.Status())
		}
	})
}

// One stream at a time enters records, also while the table is slow and streams replace each other.
func TestStreamsDoNotEnterRecordsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, from, to := newNetwork(), newModel(20_000), newModel(1)
		to.pause = 50 * time.Millisecond
		n.start(t, 1, to)
		for range 5 {
			a := n.start(t, 0, from)
			soon(t, "records", 10*time.Second, func() bool { return a.Status().SentRecords > 1000 })
			a.stop()
		}
		n.start(t, 0, from)
		soon(t, "all", 30*time.Second, func() bool { return from.sameAt(to) == 0 })
		if to.overlap {
			t.Error("two streams enter records at once")
		}
	})
}

// A peer that agrees and hangs up is not dialed without a pause, even if it dials as often itself.
func TestPeersThatHangUpAreNotDialedWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, from := newNetwork(), newModel(10)
		l := n.listen(hosts[1])
		go func() { // what it accepts and what it dials ends after the agreement
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				if s, err := newSession(c, testKey(1), false, version); err == nil {
					s.agree(Agreement{Index: 1, Loops: 2, First: 1024, Last: 65535})
				}
				c.Close()
				if c, err := n.dial(t.Context(), hosts[1], hosts[0]); err == nil {
					if s, err := newSession(c, testKey(1), true, version); err == nil {
						s.agree(Agreement{Index: 1, Loops: 2, First: 1024, Last: 65535})
					}
					c.Close()
				}
			}
		}()
		a := n.start(t, 0, from)
		time.Sleep(10 * time.Minute)
		if got := a.reported(); got > 4*(10*60/2+10) || n.dials > 2*(10*60/2+10) {
			t.Errorf("%d reports, %d attempts in 10 minutes", got, n.dials)
		}
		l.Close()
	})
}

// What is no stream of the peer ends by itself, disturbs none, and is reported at a bounded rate: garbage, streams that
// are cut at each byte or recorded and sent again, and silence.
func TestGarbageIsReportedAtABoundedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, from, to := newNetwork(), newModel(300), newModel(1)
		b := n.start(t, 1, to)
		c, _ := n.dial(t.Context(), hosts[0], hosts[1])
		stream := &recorder{Conn: c}
		s, err := newSession(stream, testKey(1), true, version)
		if err == nil {
			err = s.agree(Agreement{Index: 0, Loops: 2, First: 1024, Last: 65535})
		}
		for i := 0; i < 200 && err == nil; i += 50 {
			err = s.write(append([]byte{typeRecords}, appendAll(from.conns[i:i+50])...))
		}
		if err != nil {
			t.Fatal(err)
		}
		soon(t, "records", time.Second, func() bool { return b.Status().ReceivedRecords == 200 })
		c.Close()
		soon(t, "its end", time.Second, func() bool { return !b.Status().Receives })
		before := b.reported()
		began := time.Now()
		rng := rand.New(rand.NewPCG(5, 6))
		for i := range 2000 {
			c, err := n.dial(t.Context(), hosts[0], hosts[1])
			if err != nil {
				t.Fatal(err)
			}
			p := append([]byte(nil), stream.sent...)
			switch i % 4 {
			case 0:
				for i := range p {
					p[i] = byte(rng.Uint32())
				}
			case 1:
				p = p[:rng.IntN(len(p))]
			case 2:
				p[rng.IntN(helloLen+40)] ^= 1 << rng.IntN(8)
			}
			go func() {
				c.Write(p)
				if i%3 == 0 {
					io.Copy(io.Discard, c)
				}
				c.Close()
			}()
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		if most := int(time.Since(began)/time.Second) + 3; b.reported()-before > most {
			t.Errorf("%d reports in %v", b.reported()-before, time.Since(began))
		}
		if got := b.Status(); got.ReceivedRecords != 200 || got.Receives {
			t.Errorf("%+v", got)
		}
		n.start(t, 0, from)
		soon(t, "all", 10*time.Second, func() bool { return from.sameAt(to) == 0 })
	})
}

// recorder keeps what is written.
type recorder struct {
	net.Conn
	sent []byte
}

func (r *recorder) Write(b []byte) (int, error) {
	r.sent = append(r.sent, b...)
	return r.Conn.Write(b)
}

// A peer whose host refuses each attempt is not there; one that is reached, or does not answer, may be.
func TestAPeerThatRefusesIsNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		a := n.start(t, 0, newModel(1))
		time.Sleep(20 * time.Second)
		if d := a.Refused(); d < 18*time.Second || d > 20*time.Second {
			t.Errorf("refused for %v after 20 s", d)
		}
		n.set(func(n *network) { n.cut = true })
		time.Sleep(10 * time.Second)
		if d := a.Refused(); d != 0 {
			t.Errorf("refused for %v by a host that does not answer", d)
		}
		n.set(func(n *network) { n.cut = false })
		time.Sleep(10 * time.Second)
		if d := a.Refused(); d == 0 {
			t.Error("not refused again")
		}
		n.start(t, 1, newModel(1))
		soon(t, "the stream", 10*time.Second, func() bool { return a.Status().Sends })
		if d := a.Refused(); d != 0 {
			t.Errorf("refused for %v by a peer that is reached", d)
		}
	})
}
