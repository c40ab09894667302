package transport

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/rdma/roce"
	"github.com/millrace/millrace/wire"
)

// paper is DCQCN as its figure 7 and equations 1 to 4 have it, in events instead of deadlines: time goes in steps of 5 us, of which 11
// are each interval.
type paper struct {
	rc, rt, alpha, line float64
	t, bc               int
	ticks               int // since the last CNP
	bytes               int
	free                bool
}

func (p *paper) cnp() {
	p.rt, p.rc = p.rc, math.Max(p.rc-p.rc*p.alpha/2, p.line/1000)
	p.alpha = p.alpha*255/256 + 1.0/256
	p.t, p.bc, p.ticks, p.bytes, p.free = 0, 0, 0, 0, false
}

func (p *paper) tick() {
	if p.ticks++; p.ticks%11 == 0 && !p.free {
		p.alpha -= p.alpha / 256
		p.t++
		p.step()
	}
}

func (p *paper) send(n int) {
	if p.bytes += n; p.bytes >= 10*1024*1024 && !p.free {
		p.bytes = 0
		p.bc++
		p.step()
	}
}

func (p *paper) step() {
	if p.t > 5 && p.bc > 5 {
		p.rt += float64(min(p.t, p.bc)-5) * p.line / 100
	} else if p.t > 5 || p.bc > 5 {
		p.rt += p.line / 1000
	}
	p.rt = math.Min(p.rt, p.line)
	p.rc = 0.5*p.rc + 0.5*p.rt
	if p.rc >= 0.999*p.line {
		p.rc, p.free = p.line, true
	}
}

// TestRateFollowsThePaper compares the rate after each event of random sequences.
func TestRateFollowsThePaper(t *testing.T) {
	hyper := false
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 5))
		var got reactionPoint
		got.init(40e9)
		want := paper{rc: 5, rt: 5, alpha: 1, line: 5, free: true}
		for now := clock.Time(0); now < clock.Time(60*time.Millisecond); now += 5000 {
			want.tick()
			got.advance(now)
			switch n := r.IntN(2000 << (seed % 4)); {
			case n == 0 || now == 50000:
				for range 1 + r.IntN(8) {
					want.cnp()
					got.cut(now)
				}
			case n > 10:
				n = r.IntN(400_000)
				want.send(n)
				got.left(now, n)
			}
			hyper = hyper || !want.free && want.t > 5 && want.bc > 5
			if math.Abs(got.rate-want.rc) > 1e-9 || math.Abs(got.alpha-want.alpha) > 1e-9 && got.limited || got.limited == want.free {
				t.Fatalf("seed %d at %v: rate %v, alpha %v, limited %v; want %+v", seed, time.Duration(now), got.rate, got.alpha, got.limited, want)
			}
		}
	}
	if !hyper {
		t.Error("no sequence reached hyper increase")
	}
}

// bottleneck is a queue with a rate, which marks packets with a probability that grows with its length (RED, as the paper's
// switches).
type bottleneck struct {
	now               func() clock.Time
	r                 *rand.Rand
	perByte           float64 // ns
	busyUntil         clock.Time
	kmin, kmax, most  float64 // bytes
	marked, forwarded int
	longest           float64
}

const mostMarks = 0.01 // Pmax

// pass queues a frame: it arrives when it has left the queue.
func (b *bottleneck) pass(frame []byte) (clock.Time, bool) {
	now := b.now()
	queue := math.Max(0, float64(b.busyUntil-now)/b.perByte)
	b.longest = math.Max(b.longest, queue)
	if queue > b.most {
		return 0, false
	}
	p := mostMarks * (queue - b.kmin) / (b.kmax - b.kmin)
	if queue > b.kmax {
		p = 1
	}
	if p > 0 && b.r.Float64() < p && wire.IPv4(frame[wire.EthernetLen:]).MarkCE() {
		b.marked++
	}
	b.forwarded += len(frame)
	b.busyUntil = max(b.busyUntil, now).Add(time.Duration(float64(len(frame)) * b.perByte))
	return b.busyUntil.Add(2 * time.Microsecond), true
}

// TestCongestionControlIsFair has four queue pairs share a link of 10 Gb/s, two of which begin later. With congestion control the queue
// stays short, nothing is lost, the link is used, and all get about the same.
func TestCongestionControlIsFair(t *testing.T) {
	const line, until, flows = 10e9, clock.Time(60 * time.Millisecond), 4
	var pairs []*pair
	var now clock.Time
	b := &bottleneck{now: func() clock.Time { return now }, r: rand.New(rand.NewPCG(1, 1)), perByte: 0.8, kmin: 5e3, kmax: 200e3, most: 1e6}
	for i := range uint64(flows) {
		p := newPair(t, options{mtu: 1024, memory: 1 << 16, seed: i, line: line, window: 512, depth: 16})
		p.a.qp.attr.Timeout = 14 // far above the pauses of a slow sender
		p.a.route = b.pass
		p.b.route = func([]byte) (clock.Time, bool) { return now.Add(2 * time.Microsecond), true }
		pairs = append(pairs, p)
	}
	var before [flows]int
	for now < until {
		next := clock.Never
		for i, p := range pairs {
			p.now = now
			if i < flows/2 || now > until/6 {
				for p.a.qp.req.tail-p.a.qp.req.head < 8 {
					p.a.post(p.a.request(1, OpWrite, 0, 1<<15, 0))
				}
			}
			next = min(next, p.advance())
			if now < until/2 {
				before[i] = len(p.a.sends)
			}
		}
		now = max(next, now+100)
	}
	var sum, squares, bytes float64
	for i, p := range pairs {
		n := float64(len(p.a.sends) - before[i])
		sum, squares, bytes = sum+n, squares+n*n, bytes+n*(1<<15)
		t.Logf("flow %d: %v messages, %d CNPs, rate %.2f Gb/s", i, n, p.a.qp.Counters().CongestionNotes, p.a.qp.pace.rate*8)
		if c := p.a.qp.Counters(); c.Repeated > 0 || c.CongestionNotes == 0 {
			t.Errorf("flow %d: %+v", i, c)
		}
	}
	jain := sum * sum / (flows * squares)
	used := bytes * 8 / (float64(until/2) * line / 1e9)
	t.Logf("fairness %.3f, %.1f %% of the link, longest queue %.0f kB, %d marks", jain, used*100, b.longest/1000, b.marked)
	if jain < 0.95 || used < 0.80 || b.longest > 700e3 {
		t.Errorf("fairness %.3f, %.1f %% of the link, longest queue %.0f kB", jain, used*100, b.longest/1000)
	}
}

// advance delivers what has arrived, polls both sides and returns when the next event is.
func (p *pair) advance() clock.Time {
	for len(p.flying) > 0 && p.flying[0].at <= p.now {
		p.deliver()
	}
	p.a.poll()
	p.b.poll()
	next := min(p.a.timer, p.b.timer)
	if len(p.flying) > 0 {
		next = min(next, p.flying[0].at)
	}
	return next
}

// TestCongestionNotifications has marked packets answered by one CNP in 50 us, and forged ones ignored.
func TestCongestionNotifications(t *testing.T) {
	p := newPair(t, options{psn: 100, line: 1e9})
	mark := func(psn uint32) (cnps int) {
		f := roce.Frame{Packet: roce.Packet{Opcode: roce.WriteOnly, PKey: defaultPKey, PSN: psn, DestQP: p.b.qp.QPN()}}
		f.Src, f.TOS = p.a.addr, uint8(wire.CE)
		p.b.qp.Input(p.now, &f)
		for _, a := range p.answers() {
			cnps += b2i(a.Op == roce.CNP)
		}
		return cnps
	}
	for i, want := range []int{1, 0, 0, 0, 0, 1, 0} {
		if got := mark(100 + uint32(i)); got != want {
			t.Errorf("packet %d at %v: %d CNPs", i, time.Duration(p.now), got)
		}
		p.now += 10_000
	}
	if why, _ := p.craftFrom(wire.AddrFrom4([4]byte{192, 0, 2, 1}), roce.Packet{Opcode: roce.CNP}, 0); why != WrongSource || p.b.qp.pace.limited {
		t.Errorf("forged: %v", why)
	}
	if why, _ := p.craft(roce.Packet{Opcode: roce.CNP}, 0); why != Taken || p.b.qp.pace.rate != p.b.qp.pace.line/2 {
		t.Errorf("%v, rate %v of %v", why, p.b.qp.pace.rate, p.b.qp.pace.line)
	}
}

// TestPacing has a sender that was cut keep its rate, with WRITEs and with responses to READs.
func TestPacing(t *testing.T) {
	for _, op := range []Op{OpWrite, OpRead} {
		p := newPair(t, options{line: 8e9, mtu: 1024})
		sender := p.a
		if op == OpRead {
			sender = p.b
		}
		sender.qp.pace.cut(0) // half the rate; the estimate is 1
		sender.qp.pace.alphaAt, sender.qp.pace.raiseAt = clock.Never-1, clock.Never-1
		bytes := 0
		sender.record = func(_ roce.Packet, n int) { bytes += n + overhead }
		p.a.post(p.a.request(1, op, 0, 60000, 0))
		p.until("the completion", func() bool { return len(p.a.sends) == 1 })
		ideal := clock.Time(float64(bytes) / 0.5)
		if slack := clock.Time(burstTime) + 30_000; p.now < ideal-slack || p.now > ideal+slack {
			t.Errorf("%v: %d bytes took %v, want %v", op, bytes, time.Duration(p.now), time.Duration(ideal))
		}
		if p.a.qp.Counters().Repeated > 0 {
			t.Errorf("%+v", p.a.qp.Counters())
		}
	}
}
