package role

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func exampleClaim() Claim {
	return Claim{
		State: Probing, Index: 1, Priority: 200, Able: true, CutOff: true, Yields: true, From: Incarnation{9, 8}, Term: 1 << 40, Window: 250 * time.Millisecond,
		Addrs: []netip.Addr{netip.MustParseAddr("198.18.1.1"), netip.MustParseAddr("2001:db8::1")},
	}
}

func TestClaims(t *testing.T) {
	want := exampleClaim()
	b := want.Append(nil)
	for _, more := range []string{"", "padding"} {
		got, err := ParseClaim(append(slices.Clone(b), more...))
		if diff := cmp.Diff(want, got, sameAddr); err != nil || diff != "" {
			t.Error(err, diff)
		}
	}
	for n := range b {
		if _, err := ParseClaim(b[:n]); err == nil {
			t.Fatalf("%d octets are taken", n)
		}
	}
	for name, change := range map[string]func([]byte){
		"magic": func(b []byte) { b[0]++ }, "version": func(b []byte) { b[4] = 0 }, "standby": func(b []byte) { b[5] = byte(Standby) },
		"window": func(b []byte) { b[32] = 1 }, "addresses": func(b []byte) { b[36] = MaxClaimed + 1 }, "fewer": func(b []byte) { b[36]++ },
	} {
		c := slices.Clone(b)
		change(c)
		if _, err := ParseClaim(c); err == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
	many := want
	many.Addrs = slices.Repeat(many.Addrs, MaxClaimed)
	if got, err := ParseClaim(many.Append(nil)); err != nil || len(got.Addrs) != MaxClaimed {
		t.Errorf("%v, %d addresses", err, len(got.Addrs))
	}
}

func FuzzParseClaim(f *testing.F) {
	c := exampleClaim()
	f.Add(c.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ParseClaim(b)
		if err != nil {
			return
		}
		again, err := ParseClaim(c.Append(nil))
		if diff := cmp.Diff(c, again, sameAddr); err != nil || diff != "" {
			t.Error(err, diff)
		}
	})
}

// Of any two gateways one ranks first, at both.
func TestTheRankOfClaims(t *testing.T) {
	base := exampleClaim()
	for name, change := range map[string]func(*Claim){
		"able":        func(c *Claim) { c.Able, c.Priority, c.Index = true, 1, 1 },
		"cut off":     func(c *Claim) { c.CutOff, c.Able, c.Priority = false, false, 1 },
		"priority":    func(c *Claim) { c.Priority, c.Index, c.Term = 201, 1, 0 },
		"index":       func(c *Claim) { c.Index = 0 },
		"incarnation": func(c *Claim) { c.From[0] = 0 },
	} {
		first, other := base, base
		other.Able = name != "able"
		other.From[15] = 1
		change(&first)
		if !first.outranks(&other) || other.outranks(&first) || first.outranks(&first) {
			t.Errorf("%s", name)
		}
	}
	long, short := base, base
	long.Term, short.Index = 1<<50, 0
	if long.outranks(&short) {
		t.Error("the term counts between gateways that only probe")
	}
	if long.State, short.State = Active, Active; !long.outranks(&short) {
		t.Error("the term does not count")
	}
}

// strangers returns two gateways that hear no message of each other, as with other keys, on one link.
func strangers(t *testing.T, seed uint64, change ...func(i int, c *Config)) *world {
	w := newWorld(t, seed, change...)
	w.cut = [2]bool{true, true}
	return w
}

// Two gateways that hear nothing of each other start within any time of each other, so that their bounds end at the same instant in
// some runs: never do both answer, and one does in the end.
func TestStrangersOnALink(t *testing.T) {
	const short = MinLease
	step := 1
	if testing.Short() {
		step = 7
	}
	kinds := []func(i int, c *Config){
		func(_ int, c *Config) { c.Index = 0 },
		func(_ int, c *Config) { c.Index = 1 },
		func(i int, c *Config) { c.Index, c.Priority = 0, uint8(100+i) },
		func(i int, c *Config) { c.Index = uint8(i) },
		func(i int, c *Config) { c.Index, c.Priority = uint8(i), uint8(100+i) },
		func(i int, c *Config) { c.Index, c.Lease = 0, short*time.Duration(1+2*i) },
	}
	for k, kind := range kinds {
		for offset := 0; offset < 450; offset += step {
			w := strangers(t, uint64(offset), func(i int, c *Config) { c.Lease = short; kind(i, c) })
			w.linkDelay = time.Millisecond
			w.start(offset % 2)
			w.run(time.Duration(offset) * time.Millisecond)
			w.start(1 - offset%2)
			w.run(8 * short)
			if w.bothOn > 0 {
				w.fail("kind %d, %d ms: both answer for %v", k, offset, w.bothOn)
			}
			if w.answers(0) == w.answers(1) {
				w.fail("kind %d, %d ms: %v and %v", k, offset, w.gates[0].m.state, w.gates[1].m.state)
			}
		}
	}
}

// Both probe at the same instant, after a third host that has answered for the addresses has gone: their leases since its last answer
// end together.
func TestRivalsWhoseBoundsEndTogether(t *testing.T) {
	for seed := range uint64(50) {
		w := strangers(t, seed, func(i int, c *Config) { c.Index = uint8(seed % 2) })
		w.linkDelay = 3 * time.Millisecond
		w.start(0, 1)
		for range 40 {
			w.run(lease / 10)
			for i, g := range w.gates {
				g.m.Answered(w.local(i))
				g.m.Rivalled(w.local(i)) // and a stranger asks
			}
		}
		w.run(4 * lease)
		if w.bothOn > 0 || w.answers(0) == w.answers(1) {
			w.fail("seed %d: %v and %v, both for %v", seed, w.gates[0].m.state, w.gates[1].m.state, w.bothOn)
		}
	}
}

// Frames of the link are lost, processes stop, suspend and start, and the link is cut and joined: when two answer on one link that is
// over within a lease, and without losses and cuts of the link it never is.
func TestStrangersInTrouble(t *testing.T) {
	seeds, took := 60, 0
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		w := strangers(t, uint64(seed), func(i int, c *Config) {
			r := rand.New(rand.NewPCG(uint64(seed), uint64(i)))
			c.Index, c.Priority, c.Lease = uint8(r.IntN(2)), uint8(100+r.IntN(2)), lease*time.Duration(1+r.IntN(2))
		})
		w.linkDelay = time.Duration(1+w.rand.IntN(4)) * time.Millisecond
		lossy := seed%2 == 1
		if lossy {
			w.linkLoss = 0.2
		}
		w.start(0, 1)
		for range 20 {
			w.strangersTrouble(lossy)
			w.bothOn = 0
			w.run(3*lease + time.Duration(w.rand.Int64N(int64(3*lease))))
			if w.bothOn > 0 && (!lossy || w.bothOn > 3*lease) {
				w.fail("seed %d: both answer on one link for %v", seed, w.bothOn)
			}
		}
		w.dataCut, w.linkLoss = false, 0
		for i, g := range w.gates {
			g.frozen = false
			if !g.alive {
				w.start(i)
			}
		}
		w.run(4 * lease)
		w.bothOn = 0
		w.run(6 * lease)
		if w.bothOn > 0 || w.answers(0) == w.answers(1) {
			w.fail("seed %d: %v and %v in the end, both for %v", seed, w.gates[0].m.state, w.gates[1].m.state, w.bothOn)
		}
		for _, g := range w.gates {
			took += int(g.m.term)
		}
	}
	if took < seeds {
		t.Errorf("only %d take-overs", took)
	}
}

func (w *world) strangersTrouble(cuts bool) {
	i := w.rand.IntN(2)
	switch g := w.gates[i]; w.rand.IntN(4) {
	case 0:
		w.kill(i)
	case 1:
		w.start(i)
	case 2:
		g.frozen = g.alive && !g.frozen
	case 3:
		w.dataCut = cuts && w.rand.IntN(2) == 0
	}
}

// What floods a gateway with claims gets few in return.
func TestAFloodOfClaims(t *testing.T) {
	w := strangers(t, 1)
	w.start(0)
	w.until(0, Active, 3*lease)
	m, sent := w.gates[0].m, 0
	forged := Claim{State: Probing, Window: lease / 20}
	for range 1000 {
		w.now += tick
		for i := range 10 {
			forged.From[0] = byte(1 + i)
			m.Contested(w.local(0), &forged)
			if out := m.Poll(w.local(0)); out.Claim.State != Joining {
				sent++
			}
		}
	}
	if most := 1 + int(time.Second/m.claimPause()); sent > most || sent == 0 || m.state != Active {
		t.Errorf("%d claims, %v", sent, m.state)
	}
}

// A reflected claim, and one of a peer that is heard, change nothing.
func TestClaimsThatDoNotCount(t *testing.T) {
	w := settled(t)
	a, b := w.gates[0].m, w.gates[1].m
	own, peers := a.own(w.local(0)), b.own(w.local(1))
	peers.State, peers.Priority = Active, 255
	a.Contested(w.local(0), &own)
	a.Contested(w.local(0), &peers)
	peers.Priority = 0
	b.Contested(w.local(1), &peers)
	if a.state != Active || a.splits != 0 || b.state != Standby {
		t.Errorf("%v with %d split brains, %v", a.state, a.splits, b.state)
	}
	foreign := Claim{State: Active, Able: true, Priority: 255, From: Incarnation{1}}
	a.Contested(w.local(0), &foreign)
	if a.state != Probing || a.splits != 1 || a.last.Why != Outranked {
		t.Errorf("%v with %d split brains", a.state, a.splits)
	}
}

// A gateway of lower rank and a short lease begins and ends its probing between the last round of another one and its end: it hears
// of that by the answer to its own claims.
func TestAStrangerBetweenTwoRounds(t *testing.T) {
	for offset := 1700; offset < 1780; offset++ {
		for seed := range uint64(4) {
			w := strangers(t, seed, func(i int, c *Config) {
				c.Index, c.Priority, c.Lease = 0, uint8(200-i), []time.Duration{8 * MinLease, MinLease}[i]
			})
			w.linkDelay = 3 * time.Millisecond
			w.start(0)
			w.run(time.Duration(offset) * time.Millisecond)
			w.start(1)
			w.run(2 * lease)
			if w.bothOn > 0 || w.answers(0) == w.answers(1) {
				w.fail("%d ms: %v and %v, both for %v", offset, w.gates[0].m.state, w.gates[1].m.state, w.bothOn)
			}
		}
	}
}

// Without questions that have left, or without anyone who listens to the answers, a gateway does not answer.
func TestLinksThatAreNotListenedTo(t *testing.T) {
	w := strangers(t, 1)
	w.start(0)
	w.until(0, Probing, 2*lease)
	m, asked, listens := w.gates[0].m, 0, false
	run := func() {
		for range 1000 {
			w.now += tick
			if listens {
				m.Listened(w.local(0))
			}
			if m.Poll(w.local(0)).Probe && asked < probeRounds {
				m.Asked(w.local(0))
				asked++
			}
		}
	}
	run()
	if m.state != Probing || m.contest.rounds != probeRounds {
		t.Fatalf("%v after %d rounds that no one listens after", m.state, m.contest.rounds)
	}
	listens = true
	m.contest.rounds, asked = 0, probeRounds
	run()
	if m.state != Probing {
		t.Fatalf("%v without a round", m.state)
	}
	asked = 0
	run()
	if m.state != Active {
		t.Fatalf("%v in the end", m.state)
	}
}
