package control

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/millrace/millrace/l4/datapath"
)

var sameAddrPort = cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })

// handlerWith returns another handler of the gateway, without connections.
func (w *world) handlerWith(prefetchFrom int, seed uint64) *datapath.Handler {
	o := handlerOptions(w.g.cfg, 0)
	o.PrefetchFrom, o.Seed = prefetchFrom, seed
	h := datapath.New(o, &w.g.snap)
	w.g.handlers[0] = h // so that the status counts it
	return h
}

var snatPorts = regexp.MustCompile(`(?m)^snat_ports: .*$`)

// TestLookingAheadChangesNothing sends the same random batches through a handler that looks ahead and one
// that never does: every verdict, every byte and every count is the same, also when connections
// end and their places are used again within a batch, with more backends than the caches are taken to hold, and with few
// source ports.
func TestLookingAheadChangesNothing(t *testing.T) {
	services := []string{web, dns, "198.18.1.2:80", "198.18.1.3:80", "198.18.1.3:53"}
	flags := []string{"S", "S", "S", "A", "PA", "FA", "R"}
	manyBackends := "  - {name: many, address: 198.18.1.4:80, backends: ["
	for i := range 100 {
		manyBackends += fmt.Sprintf("{address: 198.18.2.%d:80}, ", 100+i)
	}
	manyBackends += "]}\n"
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 6))
		cfg := fmt.Sprintf(mixed, 256)
		if seed%2 == 1 {
			cfg += manyBackends
		}
		if seed >= 4 { // half-open connections give up their ports before the budget is used up
			cfg = snatPorts.ReplaceAllString(cfg, "snat_ports: 1024-1031")
		}
		ahead, plain := newWorld(t, cfg), newWorld(t, cfg)
		ahead.h, plain.h = ahead.handlerWith(1, seed+1), plain.handlerWith(math.MaxInt, seed+1)
		var answers [][]byte
		for round := range 120 {
			var pkts [][]byte
			for range 1 + r.IntN(150) {
				if len(answers) > 0 && r.IntN(3) == 0 {
					pkts = append(pkts, answers[r.IntN(len(answers))])
					continue
				}
				to := services[r.IntN(len(services))]
				f := flags[r.IntN(len(flags))]
				if to[len(to)-1] == '3' {
					f = ""
				}
				pkts = append(pkts, client(fmt.Sprintf("198.18.%d.%d:40000", 32+r.IntN(8), 1+r.IntN(100)), to, f).bytes())
			}
			a, b := ahead.batch(0, pkts...), plain.batch(0, pkts...)
			for i, p := range pkts { // replies come by the other port
				if bytes.Equal(p[:6], macGw1[:]) {
					a.D[i].Port, b.D[i].Port = 1, 1
				}
			}
			ahead.run(a)
			plain.run(b)
			answers = answers[:0]
			for i := range a.D {
				if a.D[i].Verdict != b.D[i].Verdict || a.D[i].Port != b.D[i].Port || !bytes.Equal(a.Bytes(i), b.Bytes(i)) {
					t.Fatalf("round %d, packet %d: %v %x, without looking ahead %v %x", round, i, a.D[i].Verdict, a.Bytes(i), b.D[i].Verdict, b.Bytes(i))
				}
				if p := a.Bytes(i); a.D[i].Port == 1 && p[0] == macBackend[0] && [6]byte(p[:6]) == macBackend && p[33] != 3 {
					back := map[bool]string{true: "", false: "SA"}[p[23] == 17]
					answers = append(answers, answer(p, back).bytes())
				}
			}
			step := time.Duration(r.IntN(3000)) * time.Millisecond
			ahead.now, plain.now = ahead.now.Add(step), plain.now.Add(step)
		}
		ahead.audit()
		if n := ahead.g.Status().SNAT[0].Reclaimed.HalfOpen; (n > 100) != (seed >= 4) {
			t.Errorf("seed %d: %d ports were reclaimed of half-open connections", seed, n)
		}
		if diff := cmp.Diff(plain.g.Status(), ahead.g.Status(), addrs, sameAddrPort, cmpopts.IgnoreFields(BackendStatus{}, "Since")); diff != "" {
			t.Error(diff)
		}
	}
}
