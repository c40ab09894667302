package fec

import (
	"bytes"
	"slices"
	"testing"
)

// FuzzRecovery sends datagrams through losses, duplicates and reordering that the fuzzer chooses. Each datagram
// is delivered at most once and as it was; without losses all are.
func FuzzRecovery(f *testing.F) {
	f.Add(byte(RLC), byte(2), []byte{0, 1, 0, 0, 2, 0, 3, 0, 0})
	f.Add(byte(XOR), byte(4), []byte{0, 0, 1, 0, 0, 0, 0, 0})
	f.Add(byte(RLC), byte(1), bytes.Repeat([]byte{1, 0, 5}, 100))
	f.Fuzz(func(t *testing.T, scheme, interval byte, fates []byte) {
		c := Config{Scheme: XOR + Scheme(scheme&1), Interval: 1 + int(interval%20)}
		e, err := NewEncoder(c)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		d, err := NewDecoder(c, func(b []byte) { got[string(b)]++ })
		if err != nil {
			t.Fatal(err)
		}
		var held [][]byte // symbols that come later
		lost := false
		pass := func(symbol []byte, fate byte) {
			switch fate & 3 {
			case 1:
				lost = true
				return
			case 2:
				if len(held) < 20 {
					held = append(held, slices.Clone(symbol))
					return
				}
			case 3:
				_ = d.Receive(symbol)
			}
			if err := d.Receive(symbol); err != nil {
				t.Fatal(err)
			}
			if fate&4 != 0 && len(held) > 0 {
				i := int(fate>>3) % len(held)
				_ = d.Receive(held[i])
				held = slices.Delete(held, i, i+1)
			}
			if err := d.invariants(); err != nil {
				t.Fatal(err)
			}
		}
		n := min(len(fates), 300)
		for i, fate := range fates[:n] {
			symbol, due, err := e.Source(nil, datagram(i))
			if err != nil {
				t.Fatal(err)
			}
			pass(symbol, fate)
			if due {
				pass(e.Repair(nil), fate>>2)
			}
		}
		for _, symbol := range held {
			_ = d.Receive(symbol)
		}
		for i := range n {
			switch count := got[string(datagram(i))]; {
			case count > 1:
				t.Fatalf("datagram %d came %d times", i, count)
			case count == 0 && !lost && n < horizon:
				t.Fatalf("datagram %d did not come", i)
			}
			delete(got, string(datagram(i)))
		}
		if len(got) > 0 {
			t.Fatalf("%d datagrams that were not sent", len(got))
		}
	})
}

// FuzzNegotiated splits protocols. What Offer makes comes apart again.
func FuzzNegotiated(f *testing.F) {
	f.Add("chat+fec-rlc-1", byte(1))
	f.Add("+fec-xor-1", byte(2))
	f.Fuzz(func(t *testing.T, protocol string, scheme byte) {
		if base, s := Negotiated(protocol); s == None != (base == protocol) {
			t.Fatalf("%q, %v", base, s)
		}
		s := XOR + Scheme(scheme&1)
		if base, got := Negotiated(Offer(protocol, s)[0]); base != protocol || got != s {
			t.Fatalf("%q, %v", base, got)
		}
	})
}
