package role

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
)

// Two gateways in virtual time, on two networks: messages go over one, hosts ask for addresses over the other.

const tick = clock.Time(time.Millisecond)

// gate is one of them.
type gate struct {
	m      *Machine
	cfg    Config
	alive  bool
	frozen bool // its process does not run
	next   clock.Time
	polls  bool // at the next tick

	announced, probes int
}

// frame is one of a link on its way: a question, an answer or a claim.
type frame struct {
	at    clock.Time
	to    int
	claim *Claim // nil: none
	asks  bool   // else it answers
}

// packet is a message on its way.
type packet struct {
	at clock.Time
	to int
	b  []byte
}

// world is both gateways, their networks and the time.
type world struct {
	t     *testing.T
	now   clock.Time
	rand  *rand.Rand
	key   []byte
	gates [2]*gate
	wire  []packet
	log   []string

	loss, twice  float64
	delay        time.Duration // at most
	cut          [2]bool       // messages to a gateway
	dataCut      bool          // between the links of the gateways
	portCut      [2]bool       // of a gateway's switch port, which keeps its carrier
	router       bool          // a watched host answers both, unless their ports are cut
	frames       []frame
	linkLoss     float64
	linkDelay    time.Duration // at most
	both, bothOn time.Duration // both answered: in all, and while the links were joined
	recorded     [][]byte
	pace         [2]time.Duration // of the clocks: what one goes in a second
}

const lease = time.Second

func newWorld(t *testing.T, seed uint64, change ...func(i int, c *Config)) *world {
	w := &world{t: t, now: 1000 * tick, rand: rand.New(rand.NewPCG(seed, 1)), delay: 2 * time.Millisecond}
	var err error
	if w.key, err = Key(make([]byte, 32)); err != nil {
		t.Fatal(err)
	}
	for i := range w.gates {
		c := Config{Index: uint8(i), Priority: 100, Lease: lease, PreemptDelay: 5 * lease}
		for _, f := range change {
			f(i, &c)
		}
		w.gates[i] = &gate{cfg: c}
	}
	return w
}

// start starts a gateway as a new process.
func (w *world) start(list ...int) {
	for _, i := range list {
		g := w.gates[i]
		for k := range g.cfg.Incarnation {
			g.cfg.Incarnation[k] = byte(w.rand.Uint32())
		}
		// Clocks of the two machines are days apart.
		g.m, g.alive, g.frozen, g.polls = New(g.cfg, w.local(i)), true, false, true
		g.m.SetSynced(w.local(i), true)
	}
}

// local is the time on the clock of a gateway.
func (w *world) local(i int) clock.Time {
	now := w.now
	if p := w.pace[i]; p != 0 {
		now = now * clock.Time(p/time.Millisecond) / 1000
	}
	return now + clock.Time(i)*clock.Time(50*time.Hour)
}

func (w *world) kill(i int) { w.gates[i].alive = false }

// answers reports whether a gateway answers for addresses now: its data path reads the clock for each packet.
func (w *world) answers(i int) bool {
	g := w.gates[i]
	return g.alive && !g.frozen && w.local(i) < g.m.AnswersUntil()
}

func (w *world) send(from int, b []byte) {
	to := 1 - from
	if len(w.recorded) < 2000 {
		w.recorded = append(w.recorded, b)
	}
	if w.cut[to] || w.rand.Float64() < w.loss {
		return
	}
	copies := 1
	if w.rand.Float64() < w.twice {
		copies = 2
	}
	for range copies {
		w.wire = append(w.wire, packet{w.now + clock.Time(w.rand.Int64N(int64(w.delay)+1)), to, b})
	}
}

// step lets a millisecond pass.
func (w *world) step() {
	w.now += tick
	var later []packet
	due := w.wire
	w.wire = nil
	for _, p := range due {
		switch g := w.gates[p.to]; {
		case p.at > w.now:
			later = append(later, p)
		case g.alive && g.frozen:
			later = append(later, p) // its socket keeps them
		case g.alive:
			m, err := Parse(p.b, w.key)
			if err != nil {
				w.t.Fatal(err)
			}
			w.note(p.to, func() { g.m.Receive(w.local(p.to), m) })
			g.polls = true
		}
	}
	w.wire = append(later, w.wire...)
	w.deliverFrames()
	for _, i := range []int{w.rand.IntN(2), 0, 1} { // in either order
		w.poll(i)
	}
	if w.answers(0) && w.answers(1) {
		w.both += time.Duration(tick)
		if w.joined() {
			w.bothOn += time.Duration(tick)
		}
	}
}

func (w *world) poll(i int) {
	g := w.gates[i]
	if !g.alive || g.frozen || !g.polls && w.local(i) < g.next {
		return
	}
	g.polls = false
	var out Output
	w.note(i, func() { out = g.m.Poll(w.local(i)) })
	g.next = out.Next
	if out.Next <= w.local(i) {
		w.t.Fatalf("gateway %d: the next poll is not later", i)
	}
	for _, m := range out.Messages {
		w.send(i, m.Append(nil, w.key))
	}
	if out.Announce {
		g.announced++
	}
	if out.Probe {
		g.probes++
		w.frame(frame{to: 1 - i, asks: true})
		g.m.Asked(w.local(i))
	}
	if out.Claim.State != Joining {
		w.frame(frame{to: 1 - i, claim: &out.Claim})
	}
}

// joined reports whether the links of both gateways are one.
func (w *world) joined() bool { return !w.dataCut && !w.portCut[0] && !w.portCut[1] }

// askRouter has the watched host answer, six times in a lease.
func (w *world) askRouter(i int) {
	g := w.gates[i]
	if w.router && g.alive && !g.frozen && !w.portCut[i] && w.now/tick%clock.Time(g.cfg.Lease/time.Millisecond/6) == 0 && w.rand.Float64() >= w.linkLoss {
		g.m.Reached(w.local(i))
	}
}

// frame sends a frame over the link.
func (w *world) frame(f frame) {
	if !w.joined() || w.rand.Float64() < w.linkLoss {
		return
	}
	f.at = w.now + clock.Time(w.rand.Int64N(int64(w.linkDelay)+1))
	w.frames = append(w.frames, f)
}

// deliverFrames hands frames that have come to the gateways. Those of a suspended one wait in its rings.
func (w *world) deliverFrames() {
	due := w.frames
	w.frames = nil
	for _, f := range due {
		g := w.gates[f.to]
		switch {
		case f.at > w.now, g.alive && g.frozen:
			w.frames = append(w.frames, f)
		case !g.alive:
		case f.claim != nil:
			w.note(f.to, func() { g.m.Contested(w.local(f.to), f.claim) })
			g.polls = true
		case !f.asks:
			w.note(f.to, func() { g.m.Answered(w.local(f.to)) })
			g.polls = true
		case w.answers(f.to):
			w.frame(frame{to: 1 - f.to})
		}
	}
	for i, g := range w.gates {
		w.askRouter(i)
		if g.alive && !g.frozen {
			g.m.Listened(w.local(i))
			g.polls = g.polls || g.m.state == Probing
		}
	}
}

// note writes a change of a state to the log.
func (w *world) note(i int, f func()) {
	m := w.gates[i].m
	before := m.changes
	f()
	if m.changes != before {
		w.log = append(w.log, fmt.Sprintf("%v gateway %d: %v to %v, because %v", time.Duration(w.now), i, m.last.From, m.last.To, m.last.Why))
	}
}

func (w *world) run(d time.Duration) {
	for end := w.now.Add(d); w.now < end; {
		w.step()
	}
}

// until runs until a gateway is in a state, and returns how long that took.
func (w *world) until(i int, s State, most time.Duration) time.Duration {
	w.t.Helper()
	began := w.now
	for w.gates[i].m.state != s {
		if w.now.Sub(began) > most {
			w.fail("gateway %d is %v after %v, not %v", i, w.gates[i].m.state, most, s)
		}
		w.step()
	}
	return w.now.Sub(began)
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	for _, line := range w.log[max(0, len(w.log)-30):] {
		w.t.Log(line)
	}
	w.t.Fatalf(format, args...)
}

// want checks the states of both, and that one answers at most so far.
func (w *world) want(first, second State) {
	w.t.Helper()
	if a, b := w.gates[0].m.state, w.gates[1].m.state; a != first || b != second {
		w.fail("%v and %v, not %v and %v", a, b, first, second)
	}
	if w.bothOn > 0 {
		w.fail("both have answered on one link for %v", w.bothOn)
	}
}

// settled returns a world with gateway 0 active and the other one standby.
func settled(t *testing.T, change ...func(i int, c *Config)) *world {
	t.Helper()
	w := newWorld(t, 1, change...)
	w.start(0, 1)
	w.run(3 * lease)
	w.want(Active, Standby)
	return w
}

// TestOneOfTwoAnswers runs both gateways through random losses, cuts, stops and restarts: whatever happens, no two answer on
// one link, and when all is well again exactly one does.
func TestOneOfTwoAnswers(t *testing.T) {
	seeds := 100
	if testing.Short() {
		seeds = 30
	}
	takeovers := 0
	for seed := range seeds {
		w := newWorld(t, uint64(seed), func(i int, c *Config) {
			r := rand.New(rand.NewPCG(uint64(seed), uint64(i)))
			c.Priority, c.Preempt = uint8(100+r.IntN(3)), r.IntN(3) == 0
			c.Lease = lease * time.Duration(1+r.IntN(2))
		})
		w.loss, w.twice, w.delay = 0.3*w.rand.Float64(), 0.2, time.Duration(1+w.rand.IntN(80))*time.Millisecond
		w.start(0, 1)
		for range 20 {
			w.trouble()
			w.run(time.Duration(w.rand.Int64N(int64(4 * lease))))
			if w.bothOn > 0 {
				w.fail("seed %d: both answer on one link", seed)
			}
		}
		w.loss, w.twice, w.cut, w.dataCut = 0, 0, [2]bool{}, false
		for i, g := range w.gates {
			g.frozen = false
			if !g.alive {
				w.start(i)
			}
			g.m.SetAble(w.local(i), true)
		}
		w.bothOn = 0
		w.run(10 * lease)
		states := []State{w.gates[0].m.state, w.gates[1].m.state}
		if !slices.Contains(states, Active) || !slices.Contains(states, Standby) {
			w.fail("seed %d: %v after all is well", seed, states)
		}
		if w.bothOn > 200*time.Millisecond { // after the links are joined again: a message
			w.fail("seed %d: both answer for %v after the links are joined", seed, w.bothOn)
		}
		for _, line := range w.log {
			takeovers += strings.Count(line, "to active")
		}
	}
	if takeovers < 3*seeds {
		t.Errorf("only %d take-overs in %d runs", takeovers, seeds)
	}
}

// trouble changes one thing. What keeps the gateways apart on both networks at once is for another test.
func (w *world) trouble() {
	i := w.rand.IntN(2)
	g := w.gates[i]
	switch w.rand.IntN(9) {
	case 0:
		w.kill(i)
	case 1, 2:
		if !g.alive {
			w.start(i)
		}
	case 3:
		if w.rand.IntN(2) == 0 {
			w.kill(i) // and again at once
		}
		w.start(i)
	case 4:
		w.cut[i] = true
	case 5:
		w.cut = [2]bool{w.rand.IntN(2) == 0, w.rand.IntN(2) == 0}
	case 6:
		w.cut = [2]bool{}
	case 7:
		g.frozen = !g.frozen
	case 8:
		if g.alive {
			g.m.SetAble(w.local(i), w.rand.IntN(2) == 0)
			if w.rand.IntN(3) == 0 {
				_ = g.m.ToStandby(w.local(i))
			}
		}
	}
}
