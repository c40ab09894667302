package pool

import (
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
)

// model is what a pool must do, in the obvious form.
type model struct {
	t    *testing.T
	p    *Pool
	o    Options
	now  clock.Time
	list []*modelled
	open []*Backend // requests in flight
}

type modelled struct {
	b               *Backend
	weight, own     int // of the configuration, and the operator's or -1
	state           State
	down            bool
	failed          int
	until           clock.Time
	ejectedBefore   time.Duration
	ended, inFlight int
}

func (m *model) of(b *Backend) *modelled {
	for _, x := range m.list {
		if x.b == b {
			return x
		}
	}
	return nil
}

func (x *modelled) share() int {
	if x.own >= 0 {
		return x.own
	}
	return x.weight
}

// panics reports whether health is ignored.
func (m *model) panics() bool {
	active, up := 0, 0
	for _, x := range m.list {
		if x.state == Active && x.share() > 0 {
			active++
			if !x.down && m.now >= x.until {
				up++
			}
		}
	}
	return up*100 < active*m.o.PanicThreshold
}

// pick compares a pick with what is permitted.
func (m *model) pick(key uint64, tried *Tried) *Backend {
	panics := m.panics()
	best, full, unhealthy := ranks, false, false
	rank := map[*Backend]int{}
	for _, x := range m.list {
		switch {
		case x.state != Active || x.share() == 0:
		case x.down && !panics:
			unhealthy = true
		case x.inFlight >= m.o.PerBackend.Requests:
			full = true
		default:
			r := rankUntried
			if tried.Has(x.b) {
				r = rankTried
			}
			if m.now < x.until && !panics {
				r = rankEjected
			}
			rank[x.b] = r
			best = min(best, r)
		}
	}
	b, why := m.p.Pick(m.now, key, tried)
	want := NotRefused
	switch {
	case best < ranks:
	case full:
		want = Full
	case unhealthy:
		want = Unhealthy
	default:
		want = NoBackend
	}
	if why != want {
		m.t.Fatalf("refused with %v, want %v", why, want)
	}
	if b == nil {
		return nil
	}
	if r, ok := rank[b]; !ok || r != best {
		m.t.Fatalf("%s has rank %d, the best has %d", b.Name(), r, best)
	}
	return b
}

// end ends request i.
func (m *model) end(i int, status int) {
	b := m.open[i]
	m.open = append(m.open[:i], m.open[i+1:]...)
	b.Done(m.now, Outcome{Status: status})
	x := m.of(b)
	if x == nil {
		return // it has left
	}
	x.inFlight--
	x.ended++
	switch {
	case m.now < x.until:
	case status < 500:
		x.failed = 0
	default:
		if x.failed++; x.failed == m.o.Outlier.Errors {
			m.eject(x)
		}
	}
}

func (m *model) eject(x *modelled) {
	x.failed = 0
	out, active := 0, 0
	for _, y := range m.list {
		if m.now < y.until {
			out++
		}
		if m.now < y.until || y.state == Active && !y.down && y.share() > 0 {
			active++
		}
	}
	if active-out < 2 || out >= max(1, active*m.o.Outlier.MaxEjected/100) {
		return
	}
	down := m.o.Outlier.Down
	if x.ejectedBefore > 0 && m.now.Sub(x.until) < x.ejectedBefore {
		down = min(2*x.ejectedBefore, m.o.Outlier.MaxDown)
	}
	x.ejectedBefore, x.until = down, m.now.Add(down)
}

// update changes which backends there are: those of the bits.
func (m *model) update(bits, weight byte) {
	var list []BackendOptions
	var kept []*modelled
	for i, o := range same(6) {
		if bits>>i&1 == 0 {
			continue
		}
		o.Weight = 1 + int(weight>>i&1)
		list = append(list, o)
		x := &modelled{own: -1, weight: o.Weight, until: always}
		for _, was := range m.list {
			if was.b.Name() == o.Name {
				x = was
				if x.weight != o.Weight {
					x.own = -1
				}
				x.weight = o.Weight
			}
		}
		kept = append(kept, x)
	}
	if err := m.p.Update(m.now, m.o, list); err != nil {
		m.t.Fatal(err)
	}
	for i, b := range m.p.Backends() {
		if x := kept[i]; x.b != nil && x.b != b {
			m.t.Fatalf("%s is another one", b.Name())
		}
		kept[i].b = b
	}
	m.list = kept
}

// step does one operation.
func (m *model) step(op, a, b byte) {
	var x *modelled
	if len(m.list) > 0 {
		x = m.list[int(a)%len(m.list)]
	}
	switch op := op % 10; {
	case op < 4:
		var tried Tried
		for range 1 + b%3 {
			if p := m.pick(uint64(a), &tried); p != nil {
				tried.Add(p)
				m.of(p).inFlight++
				p.Start(m.now)
				m.open = append(m.open, p)
			}
		}
	case op < 6:
		if len(m.open) > 0 {
			m.end(int(a)%len(m.open), []int{200, 500, 503, 404}[b%4])
		}
	case op == 6:
		m.now = m.now.Add(time.Duration(a) * time.Duration(b) * 10 * time.Millisecond)
	case op == 7:
		m.update(a, b)
	case x == nil:
	case op == 8 && b%4 < 2:
		x.down = b%4 == 0
		x.b.SetHealthy(m.now, !x.down, nil)
	case op == 8:
		x.own = int(b) % 3
		x.b.SetWeight(m.now, x.own)
	default:
		x.state = State(b % 3)
		x.b.SetState(m.now, x.state)
	}
}

// FuzzPool compares a pool under any operations with the model: whom it may choose, why it refuses, ejections, and counts.
func FuzzPool(f *testing.F) {
	f.Add([]byte{0, 7, 0x3f, 5, 0, 1, 2, 4, 0, 1, 4, 0, 1, 0, 2, 2})
	f.Add([]byte{0x57, 7, 0x3f, 5, 8, 1, 0, 9, 2, 1, 0, 1, 2, 5, 0, 1, 5, 0, 1, 5, 0, 1, 6, 255, 255, 0, 1, 1})
	f.Fuzz(func(t *testing.T, ops []byte) {
		if len(ops) == 0 {
			return
		}
		m := &model{t: t, o: Options{
			Balance: all[ops[0]%4], HashSize: 251, SlowStart: time.Duration(ops[0]>>2&1) * 20 * time.Second,
			PanicThreshold: int(ops[0]>>3&1) * 50, PerBackend: Limits{Requests: 4},
			Outlier: &Outlier{Errors: 2, Down: 5 * time.Second, MaxDown: 15 * time.Second, MaxEjected: 50},
		}}
		m.p = newPool(t, m.o, nil)
		for ops = ops[1:]; len(ops) >= 3; ops = ops[3:] {
			m.step(ops[0], ops[1], ops[2])
		}
		for i, s := range m.p.Status(m.now).Backends {
			x := m.list[i]
			if s.Requests != x.inFlight || int(s.Statuses[2]+s.Statuses[4]+s.Statuses[5]) != x.ended {
				t.Errorf("%s counts %d in flight, %v ended; want %d, %d", x.b.Name(), s.Requests, s.Statuses, x.inFlight, x.ended)
			}
			if out := m.now < x.until; out != (s.Ejected > 0) || out && s.Ejected != x.until.Sub(m.now) {
				t.Errorf("%s is ejected for %v, want until %v", x.b.Name(), s.Ejected, x.until.Sub(m.now))
			}
		}
		if m.p.Requests() != len(m.open) {
			t.Errorf("%d requests in flight, want %d", m.p.Requests(), len(m.open))
		}
	})
}
