package loss

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp/seqnum"
	"github.com/millrace/millrace/wire"
)

// segment is one of the slow model's: there the flight is a list of single segments, and each rule is
// a walk over all of them, as the RFCs write it.
type segment struct {
	seq, end             uint32
	sent                 clock.Time
	sacked, lost, resent bool
}

// model is the slow scoreboard.
type model struct {
	una, next, high uint32
	mss             uint32
	segs            []segment
	delivered       uint64
	inEpisode       bool

	rackSent      clock.Time
	rackEnd       uint32
	rackRTT       time.Duration
	valid         bool
	fack          uint32
	reordering    bool
	minRTT, srtt  time.Duration
	mult, persist int
	late, latest  time.Duration
}

func (m *model) sent(now clock.Time, n uint32) {
	if len(m.segs) == 0 {
		m.fack, m.valid, m.inEpisode, m.rackRTT = m.next, false, false, 0
	}
	for n > 0 {
		size := min(n, m.mss)
		m.segs = append(m.segs, segment{seq: m.next, end: m.next + size, sent: now})
		m.next += size
		n -= size
	}
}

func (m *model) resent(now clock.Time, seq, n uint32) {
	for i := range m.segs {
		if s := &m.segs[i]; !seqnum.Before(s.seq, seq) && seqnum.Before(s.seq, seq+n) {
			s.sent, s.resent, s.lost = now, true, false
		}
	}
}

// ack takes a cumulative ACK and blocks, all at ends of segments. rtt and least are what the board says:
// their estimator has tests of its own.
func (m *model) ack(now clock.Time, una uint32, blocks []wire.SACKBlock, srtt, least time.Duration) {
	m.srtt = srtt
	prior, rtt := m.fack, m.rackRTT
	for i := range m.segs {
		s := &m.segs[i]
		arrived := !seqnum.Before(una, s.end)
		for _, x := range blocks {
			arrived = arrived || !seqnum.Before(s.seq, x.Left) && !seqnum.Before(x.Right, s.end)
		}
		if arrived && !s.sacked {
			s.sacked, s.lost = true, false
			m.delivered += uint64(s.end - s.seq)
			m.arrived(now, s, prior, rtt)
		}
	}
	m.minRTT = least
	m.una = una
	for len(m.segs) > 0 && !seqnum.Before(una, m.segs[0].end) {
		m.segs = m.segs[1:]
	}
	if m.inEpisode && !seqnum.Before(una, m.high) {
		m.inEpisode = false
		m.recovered()
	}
}

func (m *model) recovered() {
	m.persist--
	if m.persist <= 0 {
		m.persist, m.mult = 0, 1
		m.late, m.latest = m.latest, 0
		if m.late > 0 {
			m.persist = 16
		}
	}
}

func (m *model) arrived(now clock.Time, s *segment, prior uint32, rackRTT time.Duration) {
	if seqnum.Before(m.fack, s.end) {
		m.fack = s.end
	}
	if seqnum.Before(s.end, prior) && !s.resent {
		m.reordering = true
		late := now.Sub(s.sent) - rackRTT
		m.late, m.latest = max(m.late, late), max(m.latest, late)
		if m.persist == 0 {
			m.persist = 16
		}
	}
	rtt := now.Sub(s.sent)
	if s.resent && rtt < m.minRTT {
		return
	}
	if !m.valid || s.sent > m.rackSent || s.sent == m.rackSent && seqnum.Before(m.rackEnd, s.end) {
		m.valid, m.rackSent, m.rackEnd, m.rackRTT = true, s.sent, s.end, rtt
	}
}

// detect is RACK_detect_loss; it returns whether something was newly lost.
func (m *model) detect(now clock.Time) (found bool) {
	if !m.valid {
		return false
	}
	late := m.rackRTT + m.window()
	for i := range m.segs {
		s := &m.segs[i]
		if s.sacked || s.lost {
			continue
		}
		earlier := s.sent < m.rackSent || s.sent == m.rackSent && seqnum.Before(s.end, m.rackEnd)
		if earlier && s.sent.Add(late) <= now {
			s.lost, found = true, true
		}
	}
	return found
}

func (m *model) window() time.Duration {
	var sacked uint32
	for _, s := range m.segs {
		if s.sacked {
			sacked += s.end - s.seq
		}
	}
	if !m.reordering && (m.inEpisode || sacked > 2*m.mss) {
		return 0
	}
	return min(time.Duration(m.mult)*m.minRTT/4+m.late.Truncate(time.Microsecond), max(m.srtt, 10*time.Millisecond))
}

func (m *model) begin() {
	m.inEpisode, m.high = true, m.next
}

func (m *model) timeout(now clock.Time) {
	late := m.rackRTT + m.window()
	if len(m.segs) > 0 && m.segs[0].sacked {
		for i := range m.segs {
			if s := &m.segs[i]; s.sacked {
				s.sacked, s.lost, s.resent = false, true, true
			}
		}
		late = m.rackRTT + m.window()
	}
	for i := range m.segs {
		if s := &m.segs[i]; !s.sacked && !s.lost && (s.seq == m.una || s.sent.Add(late) <= now) {
			s.lost = true
		}
	}
	m.begin()
}

// pipe, lost and sacked count bytes.
func (m *model) counts() (pipe, lost, sacked uint32) {
	for _, s := range m.segs {
		switch n := s.end - s.seq; {
		case s.sacked:
			sacked += n
		case s.lost:
			lost += n
		default:
			pipe += n
		}
	}
	return
}

// check compares board and model.
func (m *model) check(t *testing.T, b *Scoreboard, what string) {
	t.Helper()
	pipe, lost, sacked := m.counts()
	var have [3]uint32
	if f := b.f; f != nil {
		have = [3]uint32{f.pipe, f.missing, f.sacked}
		checkLists(t, b)
	}
	if have != [3]uint32{pipe, lost, sacked} {
		t.Fatalf("after %s: pipe, missing, SACKed are %v, want %v", what, have, [3]uint32{pipe, lost, sacked})
	}
	if b.Outstanding() != m.next-m.una || b.Delivered() != m.delivered {
		t.Fatalf("after %s: outstanding %d, delivered %d, want %d, %d", what, b.Outstanding(), b.Delivered(), m.next-m.una, m.delivered)
	}
	if b.InRecovery() != (m.inEpisode && len(m.segs) > 0) {
		t.Fatalf("after %s: InRecovery is %v", what, b.InRecovery())
	}
	seq, n := b.Lost()
	for _, s := range m.segs {
		if s.lost {
			if b.WantsNewData() {
				break
			}
			if n == 0 || seq != s.seq {
				t.Fatalf("after %s: Lost is %d+%d, the model's first is %d", what, seq, n, s.seq)
			}
			break
		}
	}
}

// checkLists checks that the records cover the flight, in both orders.
func checkLists(t *testing.T, b *Scoreboard) {
	t.Helper()
	f := b.f
	at, waiting := b.una, 0
	for i := f.head; i != 0; i = b.record(i).next {
		r := b.record(i)
		if r.seq != at || !seqnum.Before(r.seq, r.end) {
			t.Fatalf("record [%d, %d) at %d", r.seq, r.end, at)
		}
		if n := r.next; n != 0 && b.record(n).prev != i || n == 0 && f.tail != i {
			t.Fatalf("record %d: list broken", i)
		}
		at = r.end
		if r.state&(sacked|missing) == 0 {
			waiting++
		}
	}
	if at != b.next {
		t.Fatalf("records end at %d, SND.NXT is %d", at, b.next)
	}
	checkIndex(t, b)
	var last *record
	for i := f.oldest; i != 0; i = b.record(i).later {
		r := b.record(i)
		if r.state&(sacked|missing) != 0 || last != nil && !sentAfter(r.sent, r.end, last.sent, last.end) {
			t.Fatalf("order of transmission broken at [%d, %d)", r.seq, r.end)
		}
		last = r
		waiting--
	}
	if waiting != 0 {
		t.Fatalf("%d records are not in the order of transmission", waiting)
	}
}

// checkIndex checks that the groups are the records in order, and count them.
func checkIndex(t *testing.T, b *Scoreboard) {
	t.Helper()
	f := b.f
	records := 0
	for i := f.head; i != 0; i = b.record(i).next {
		records++
	}
	if records != f.records {
		t.Fatalf("%d records are counted, there are %d", f.records, records)
	}
	x := f.index
	if x == nil {
		if records > indexFrom {
			t.Fatalf("%d records without an index", records)
		}
		return
	}
	if len(x.order)+len(x.unused) != len(x.groups) || len(x.order) > records/(groupSize/2)*2+2 {
		t.Fatalf("%d groups, %d in order, %d unused, for %d records", len(x.groups), len(x.order), len(x.unused), records)
	}
	i := f.head
	for _, id := range x.order {
		g := x.groups[id]
		if g.first != i || g.records == 0 || g.records > maxGroup {
			t.Fatalf("group %d begins at record %d, want %d; %d records", id, g.first, i, g.records)
		}
		lost := uint16(0)
		for range g.records {
			r := b.record(i)
			if r.group != id {
				t.Fatalf("record %d is in group %d, want %d", i, r.group, id)
			}
			if r.state&missing != 0 {
				lost++
			}
			i = r.next
		}
		if lost != g.missing {
			t.Fatalf("group %d counts %d lost records, want %d", id, g.missing, lost)
		}
	}
	if i != 0 {
		t.Fatal("records behind the last group")
	}
}

// drive has board and model do what data says, and compares them after each step.
func drive(t *testing.T, data []byte) {
	const mss = 100
	start := uint32(0xffffff00) // wraps early
	var p Pool
	var b Scoreboard
	b.Init(&p, start, Options{MSS: mss, SACK: true})
	m := &model{una: start, next: start, mss: mss, mult: 1}
	now := clock.Time(time.Second)
	for len(data) >= 3 {
		op, x, y := data[0], uint32(data[1]), uint32(data[2])
		data = data[3:]
		switch op % 8 {
		case 0, 1:
			now += clock.Time(x) * clock.Time(time.Microsecond) * 100
			if m.next-m.una > 1<<16 {
				continue
			}
			n := (y%40 + 1) * mss
			b.Sent(now, m.next, n)
			m.sent(now, n)
			m.check(t, &b, "Sent")
		case 2, 3, 4:
			now += clock.Time(x) * clock.Time(time.Microsecond) * 50
			driveAck(t, &b, m, now, x, y, op>>3)
		case 5:
			for range y%4 + 1 {
				seq, n := b.Lost()
				if n == 0 {
					break
				}
				n = min(n, (x%3+1)*mss)
				b.Resent(now, seq, n)
				m.resent(now, seq, n)
				m.check(t, &b, "Resent")
			}
		case 6:
			now += clock.Time(y) * clock.Time(time.Millisecond)
			driveTimer(t, &b, m, now)
		case 7:
			b.NewDataSent(x&1 == 0)
			if seq, n := b.Probe(); n > 0 && y&1 == 0 && b.record(b.f.tail).state&(sacked|missing) == 0 {
				b.Resent(now, seq, n)
				m.resent(now, seq, n)
				m.check(t, &b, "Probe")
			}
		}
	}
	b.Release()
	if p.Records() != 0 {
		t.Fatalf("%d records are left", p.Records())
	}
}

func driveTimer(t *testing.T, b *Scoreboard, m *model, now clock.Time) {
	var s Sample
	if b.Timer() > now {
		return
	}
	reo := b.f.reoTimer != 0 && b.f.reoTimer <= now
	b.OnTimer(now, &s)
	if reo && m.detect(now) && !m.inEpisode {
		m.begin()
	}
	if s.Events&(Timeout|Backoff) != 0 {
		m.timeout(now)
	}
	m.check(t, b, "OnTimer")
}

// driveAck makes an ACK up to the x-th segment in flight, with up to three blocks of whole segments.
func driveAck(t *testing.T, b *Scoreboard, m *model, now clock.Time, x, y uint32, op byte) {
	var a Ack
	a.Una = m.una
	if len(m.segs) > 0 && op&1 == 0 {
		a.Una = m.segs[int(x)%len(m.segs)].end
	}
	for k := uint32(0); k < uint32(op>>1)%4 && len(m.segs) > 0; k++ {
		i := int((x*7 + y*(k+1)) % uint32(len(m.segs)))
		j := min(i+int(y%5)+1, len(m.segs)) - 1
		if x := (wire.SACKBlock{Left: m.segs[i].seq, Right: m.segs[j].end}); seqnum.Before(a.Una, x.Left) {
			if len(a.SACK) > 0 && seqnum.Before(a.SACK[len(a.SACK)-1].Left, x.Right) {
				continue // blocks are disjoint; the first is no DSACK
			}
			a.SACK = append(a.SACK, x)
		}
	}
	var s Sample
	b.Ack(now, &a, &s)
	m.ack(now, a.Una, a.SACK, b.SRTT(), b.MinRTT())
	if s.Events&Undo != 0 { // F-RTO: the model believes the board
		m.inEpisode = false
		for i := range m.segs {
			m.segs[i].lost = false
		}
		m.recovered()
	}
	if len(m.segs) > 0 && m.detect(now) && !m.inEpisode {
		m.begin()
	}
	m.check(t, b, "Ack")
}

func TestScoreboardAgainstModel(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 6))
		data := make([]byte, 900)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		if ok := t.Run("", func(t *testing.T) { drive(t, data) }); !ok {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzBoard(f *testing.F) {
	f.Add([]byte{0, 1, 9, 2, 40, 3, 19, 5, 5, 5, 1, 1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, data []byte) { drive(t, data) })
}

// Records returns how many records are in use, by all boards of the pool.
func (p *Pool) Records() int { return p.used }

// Missing is how many bytes are lost and not sent again.
func (b *Scoreboard) Missing() uint32 {
	if b.f == nil {
		return 0
	}
	return b.f.missing
}
