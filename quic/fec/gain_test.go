package fec

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// lossModel decides on the next packet.
type lossModel func() bool

// independent loses each packet with probability p.
func independent(rnd *rand.Rand, p float64) lossModel {
	return func() bool { return rnd.Float64() < p }
}

// bursts loses packets in bursts of 3 on average, a share p of all (Gilbert).
func bursts(rnd *rand.Rand, p float64) lossModel {
	const leave = 1.0 / 3
	enter := leave * p / (1 - p)
	bad := false
	return func() bool {
		if bad {
			bad = rnd.Float64() >= leave
		} else {
			bad = rnd.Float64() < enter
		}
		return bad
	}
}

// result is what a simulation found.
type result struct {
	residual float64       // share of datagrams that were never delivered
	delay    time.Duration // from when a datagram would have arrived to its recovery, on average
	overhead float64       // repair symbols for each source symbol
}

// simulate sends a datagram every millisecond of virtual time. Its size does not matter to the codes.
func simulate(t *testing.T, c Config, lose lossModel) (r result) {
	t.Helper()
	const step = time.Millisecond
	n := 15_000
	if raceEnabled {
		n = 6000 // each byte costs a hundred times as much
	}
	e, err := NewEncoder(c)
	if err != nil {
		t.Fatal(err)
	}
	var now time.Duration // since the start, less the delay of the link
	delivered, recovered, repairs := 0, 0, 0
	var waited time.Duration
	d, err := NewDecoder(c, func(b []byte) {
		delivered++
		if sent := time.Duration(binary.BigEndian.Uint64(b)); sent != now {
			recovered++
			waited += now - sent
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	payload := make([]byte, 8)
	for i := range n {
		now = time.Duration(i) * step
		binary.BigEndian.PutUint64(payload, uint64(now))
		symbol, due, _ := e.Source(nil, payload)
		if !lose() {
			_ = d.Receive(symbol)
		}
		if due {
			repairs++
			if symbol = e.Repair(nil); !lose() {
				_ = d.Receive(symbol)
			}
		}
	}
	r.residual = 1 - float64(delivered)/float64(n)
	r.overhead = float64(repairs) / float64(n)
	if recovered > 0 {
		r.delay = waited / time.Duration(recovered)
	}
	return r
}

// TestGain measures what the codes are good for, at 1 to 5 % loss and 10 or 20 % overhead. The table
// that it logs is that of docs/design/021-quic.md. A retransmission takes a round trip of 50 ms and
// the time to detect the loss.
func TestGain(t *testing.T) {
	codes := []Config{{}, {Scheme: XOR, Interval: 10}, {Scheme: RLC, Interval: 10, Window: 40}, {Scheme: XOR, Interval: 5}, {Scheme: RLC, Interval: 5, Window: 40}}
	for _, model := range []struct {
		name string
		of   func(*rand.Rand, float64) lossModel
	}{{"independent", independent}, {"bursts of 3", bursts}} {
		for _, p := range []float64{0.01, 0.02, 0.05} {
			var results []result
			line := fmt.Sprintf("%-11s %2.0f %%:", model.name, p*100)
			for _, c := range codes {
				r := simulate(t, c, model.of(rand.New(rand.NewPCG(7, uint64(p*1000))), p))
				results = append(results, r)
				line += fmt.Sprintf("  %v/%d %.3f %% %v", c.Scheme, c.Interval, r.residual*100, r.delay.Round(time.Millisecond/10))
			}
			t.Log(line)
			none, xor10, rlc10, rlc5 := results[0].residual, results[1].residual, results[2].residual, results[4].residual
			if none < p*0.5 || none > p*1.8 {
				t.Errorf("%s: %v without FEC", line, none)
			}
			// Independent losses: RLC leaves a tenth up to 2 %, and with 20 % overhead a fiftieth at 5 %.
			// XOR leaves about p times the block. Bursts of 3 defeat XOR; RLC with
			// 20 % leaves less than a third.
			if model.name == "independent" && (xor10 > none*0.6 || rlc10 > none*0.4 || p < 0.05 && rlc10 > none*0.1 || rlc5 > none*0.02) {
				t.Errorf("%s: too little gain", line)
			}
			if model.name != "independent" && (rlc10 > none*0.9 || rlc5 > none*0.3 || rlc5 > xor10) {
				t.Errorf("%s: too little gain", line)
			}
			for i, r := range results[1:] {
				if r.delay <= 0 || r.delay > 100*time.Millisecond || r.overhead < 0.09 || r.overhead > 0.21 {
					t.Errorf("%s: %v: %+v", line, codes[i+1], r)
				}
			}
		}
	}
}
