package quic

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// registerAt is a register whose clock the test moves.
func registerAt(c StrikeConfig) (*StrikeRegister, *time.Time) {
	now := time.Unix(1e9, 0)
	c.Now = func() time.Time { return now }
	return NewStrikeRegister(c), &now
}

func TestTicketsAreGoodOnce(t *testing.T) {
	r, now := registerAt(StrikeConfig{Window: time.Minute})
	extra := [][]byte{[]byte("of quic-go"), r.extra()}
	for i, want := range []bool{true, false, false} {
		if got := r.permit([]byte("ticket"), extra); got != want {
			t.Errorf("use %d: %v", i, got)
		}
		*now = now.Add(35 * time.Second)
	}
	if !r.permit([]byte("other"), [][]byte{r.extra()}) {
		t.Error("another ticket was refused")
	}
	if s := r.Stats(); s.Accepted != 2 || s.Replayed != 1 || s.Expired != 1 {
		t.Errorf("%+v", s) // the third use came 70 s after the issue
	}
}

func TestTicketsOfOthers(t *testing.T) {
	r, now := registerAt(StrikeConfig{Window: time.Minute})
	other, _ := registerAt(StrikeConfig{Window: time.Minute})
	mine := r.extra()
	for name, extra := range map[string][]byte{
		"another register": other.extra(), "cut": mine[:len(mine)-1], "longer": append(mine[:len(mine):len(mine)], 0),
		"none": nil,
	} {
		if r.permit([]byte(name), [][]byte{extra}) {
			t.Errorf("%s: accepted", name)
		}
	}
	if s := r.Stats(); s.Foreign != 4 {
		t.Errorf("%+v", s)
	}
	*now = now.Add(-time.Second) // a ticket from the future: the clock was set back
	if r.permit([]byte("future"), [][]byte{mine}) {
		t.Error("a ticket from the future was accepted")
	}
}

// TestRegisterIsBounded: when it is full it refuses, and never forgets a ticket that is still good.
func TestRegisterIsBounded(t *testing.T) {
	r, now := registerAt(StrikeConfig{Window: time.Minute, Entries: 10})
	extra := [][]byte{r.extra()}
	for i := range 20 {
		if got := r.permit(fmt.Append(nil, i), extra); got != (i < 10) {
			t.Errorf("ticket %d: %v", i, got)
		}
	}
	if s := r.Stats(); s.Full != 10 || len(r.now)+len(r.before) != 10 {
		t.Errorf("%+v, %d entries", s, len(r.now)+len(r.before))
	}
	*now = now.Add(61 * time.Second)
	if !r.permit([]byte("new"), [][]byte{r.extra()}) || len(r.now) != 1 || len(r.before) != 10 {
		t.Errorf("%d and %d entries", len(r.now), len(r.before))
	}
	*now = now.Add(121 * time.Second)
	if !r.permit([]byte("newer"), [][]byte{r.extra()}) || len(r.now) != 1 || len(r.before) != 0 {
		t.Errorf("%d and %d entries", len(r.now), len(r.before))
	}
}

// TestRegisterAgainstAList compares with a list that forgets nothing, over random times.
func TestRegisterAgainstAList(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	r, now := registerAt(StrikeConfig{Window: time.Minute})
	type ticket struct {
		id     []byte
		extra  [][]byte
		issued time.Time
		used   bool
	}
	var all []*ticket
	for i := range 5000 {
		*now = now.Add(time.Duration(rnd.Int64N(int64(5 * time.Second))))
		if len(all) == 0 || rnd.IntN(2) == 0 {
			all = append(all, &ticket{id: fmt.Append(nil, i), extra: [][]byte{r.extra()}, issued: *now})
		}
		k := all[max(0, len(all)-1-rnd.IntN(30))%len(all)]
		want := !k.used && now.Sub(k.issued) < time.Minute
		if got := r.permit(k.id, k.extra); got != want {
			t.Fatalf("step %d: %v, want %v: used %v, age %v", i, got, want, k.used, now.Sub(k.issued))
		}
		k.used = k.used || want
	}
	if s := r.Stats(); s.Accepted < 500 || s.Replayed < 100 || s.Expired < 100 {
		t.Errorf("%+v", s)
	}
}

// TestKeysHaveOnePurpose: no key that is derived from a secret serves for two things.
func TestKeysHaveOnePurpose(t *testing.T) {
	seen := map[[32]byte]string{}
	for _, label := range []string{resetLabel, tokenLabel, ticketLabel} {
		key, err := deriveKey([]byte("a secret of enough bytes"), label)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[key]; ok {
			t.Errorf("%s and %s have one key", label, other)
		}
		seen[key] = label
	}
}
