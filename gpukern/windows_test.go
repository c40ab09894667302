package gpukern_test

import (
	"bytes"
	"fmt"
	"testing"

	. "github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/literal"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

func TestTextsAreThePayloadsOfPackets(t *testing.T) {
	var texts StreamWindows
	several, padded := 0, 0
	for seed := range uint64(40) {
		g := kernref.NewGenerator(seed)
		b := g.Batch(300)
		if err := NewCPU(Config{Ops: OpParse}).Submit(b); err != nil {
			t.Fatal(err)
		}
		texts.Begin(b, nil)
		more := texts.Next()
		for i := 0; i < len(b.D); {
			captured, all, next := kernref.WholePacket(b, i)
			want, start := kernref.Text(captured, all)
			var got []byte
			at := 0 // of descriptor i in the packet
			for pieces := 0; i < next; i++ {
				if more && texts.D == i {
					if texts.First != (pieces == 0) {
						t.Fatalf("seed %d, descriptor %d: first piece %v", seed, i, texts.First)
					}
					if at+texts.From != start+len(got) {
						t.Fatalf("seed %d, descriptor %d: text at %d, want %d", seed, i, at+texts.From, start+len(got))
					}
					if tail := got[max(len(got)-CarryOverLen, 0):]; !bytes.Equal(texts.CarryOver(), tail) {
						t.Fatalf("seed %d, descriptor %d: tail %x, want %x", seed, i, texts.CarryOver(), tail)
					}
					got = append(got, texts.Bytes...)
					if pieces++; pieces == 2 {
						several++
					}
					more = texts.Next()
				}
				at += int(b.D[i].Len)
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("seed %d, packet before %d: text %x, want %x", seed, next, got, want)
			}
			if len(want) > 0 && start+len(want) < len(all) {
				padded++
			}
		}
		if more {
			t.Fatal("a text that belongs to no packet")
		}
	}
	if several < 100 || padded < 100 {
		t.Fatalf("%d texts in pieces, %d with padding: too few to tell anything", several, padded)
	}
}

func TestATailIsTheLastBytesOfWhatWasPushed(t *testing.T) {
	g := kernref.NewGenerator(1)
	for range 200 {
		var tl Tail
		var all []byte
		for range 12 {
			p := g.Bytes(g.IntN(1 + []int{3, 20, 63, 64, 65, 200}[g.IntN(6)]))
			tl.Push(p)
			all = append(all, p...)
			if want := all[max(len(all)-CarryOverLen, 0):]; !bytes.Equal(tl.Bytes(), want) {
				t.Fatalf("tail %x, want %x", tl.Bytes(), want)
			}
		}
	}
}

// udp returns a UDP packet over IPv4 from a host to another.
func udp(src, dst byte, sport uint16, payload []byte) []byte {
	p := make([]byte, 42, 42+len(payload))
	p[12], p[14], p[22], p[23] = 8, 0x45, 64, 17
	p[16], p[17] = byte((28+len(payload))>>8), byte(28+len(payload))
	p[26], p[29], p[30], p[33] = 10, src, 10, dst
	p[34], p[35], p[37] = byte(sport>>8), byte(sport), 53
	p[38], p[39] = byte((8+len(payload))>>8), byte(8+len(payload))
	return append(p, payload...)
}

// inFlow gives each packet of a batch, after the pass, a flow: what OpFlow would find.
func inFlow(t *testing.T, flows []uint32, packets ...[]byte) *packet.Batch {
	t.Helper()
	var all [][][]byte
	for _, p := range packets {
		all = append(all, kernref.One(p))
	}
	b := kernref.BatchOf(all...)
	if err := NewCPU(Config{Ops: OpParse}).Submit(b); err != nil {
		t.Fatal(err)
	}
	for i := range b.D {
		b.D[i].Flow = flows[i]
	}
	return b
}

func newStreams(t testing.TB, flows int) *Streams {
	t.Helper()
	s, err := NewStreams(flows)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// tails returns what each text of b goes on from.
func tails(b *packet.Batch, s *Streams) []string {
	var x StreamWindows
	var all []string
	for x.Begin(b, s); x.Next(); {
		all = append(all, string(x.CarryOver()))
	}
	return all
}

func TestAStreamGoesOnFromBatchToBatch(t *testing.T) {
	s := newStreams(t, 4)
	for _, step := range []struct {
		words [3]string // of a flow's one direction, the other, and the first again
		tails string
	}{
		{[3]string{"one", "two", "four"}, "[  one]"},
		{[3]string{"five", "three", "six"}, "[onefour two onefourfive]"},
		{[3]string{"1", "", "2"}, "[onefourfivesix onefourfivesix1]"},
		{[3]string{"", "4", ""}, "[twothree]"},
	} {
		b := inFlow(
			t, []uint32{2, 3, 2},
			udp(1, 2, 9, []byte(step.words[0])), udp(2, 1, 9, []byte(step.words[1])), udp(1, 2, 9, []byte(step.words[2])),
		)
		if got := fmt.Sprint(tails(b, s)); got != step.tails {
			t.Errorf("%q: tails %q, want %q", step.words, got, step.tails)
		}
	}
}

func TestAFlowThatTakesOverASlotBeginsAnew(t *testing.T) {
	other := map[string][]byte{
		"source":      udp(9, 2, 9, []byte("b")),
		"destination": udp(1, 9, 9, []byte("b")),
		"port":        udp(1, 2, 8, []byte("b")),
	}
	proto := udp(1, 2, 9, []byte("............b"))
	proto[23], proto[46] = 6, 0x50
	other["protocol"] = proto
	fragment := udp(1, 2, 9, []byte("b"))
	fragment[20] = 0x20
	other["fragment"] = fragment
	for name, p := range other {
		s := newStreams(t, 4)
		b := inFlow(t, []uint32{4, 4, 4, 4}, udp(1, 2, 9, []byte("a")), udp(1, 2, 9, []byte("a")), p, p)
		if got := fmt.Sprint(tails(b, s)); got != "[ a  b]" {
			t.Errorf("other %s: tails %q", name, got)
		}
	}
}

func TestAnIPv6FlowIsKnownByAllBytesOfItsAddresses(t *testing.T) {
	p := make([]byte, 14+40+8+1)
	p[12], p[13], p[14], p[19], p[20] = 0x86, 0xdd, 0x60, 9, 17
	p[59], p[62] = 9, 'a'
	s := newStreams(t, 1)
	for at := 22; at < 54; at++ {
		q := bytes.Clone(p)
		q[at] ^= 1
		if got := fmt.Sprint(tails(inFlow(t, []uint32{2, 2, 2}, p, q, q), s)); got != "[  a]" {
			t.Errorf("byte %d of the packet: tails %q", at, got)
		}
	}
}

func TestPacketsWithoutAPlaceAreTextsOfTheirOwn(t *testing.T) {
	s := newStreams(t, 1)
	p := udp(1, 2, 9, []byte("a"))
	for _, flow := range []uint32{0, 1, 4, 5, 1 << 31, 1<<32 - 1} {
		if got := fmt.Sprint(tails(inFlow(t, []uint32{flow, flow}, p, p), s)); got != "[ ]" {
			t.Errorf("flow %d: tails %q", flow, got)
		}
	}
	for _, flow := range []uint32{2, 3} {
		if got := fmt.Sprint(tails(inFlow(t, []uint32{flow, flow}, p, p), s)); got != "[ a]" {
			t.Errorf("flow %d: tails %q", flow, got)
		}
	}
	if got := fmt.Sprint(tails(inFlow(t, []uint32{2, 2}, p, p), nil)); got != "[ ]" {
		t.Errorf("no streams: tails %q", got)
	}
}

func TestStreamsHaveRoomForSomeSlotsOnly(t *testing.T) {
	for _, n := range []int{-1, 0, MaxStreams + 1} {
		if s, err := NewStreams(n); err == nil {
			t.Errorf("%d slots: no error, room for %d", n, s.Slots())
		}
	}
	if n := newStreams(t, MaxStreams).Slots(); n != MaxStreams {
		t.Errorf("room for %d slots", n)
	}
}

// TestWindowIsWhatTheEngineSearches compares Window with the windows of a batch, and reads matches by packet.
func TestWindowIsWhatTheEngineSearches(t *testing.T) {
	b := &packet.Batch{Arena: &packet.Arena{Mem: make([]byte, 8<<11), Shift: 11}}
	for i := range 8 {
		udp := wire.AppendUDP(nil, 1, 2, 3*i)
		ip := wire.AppendIPv4(wire.AppendEthernet(nil, wire.MAC{2}, wire.MAC{4}, wire.EtherTypeIPv4),
			&wire.IPv4Header{PayloadLen: len(udp) + 3*i, TTL: 1, Proto: wire.ProtoUDP, Src: [4]byte{1}, Dst: [4]byte{2}})
		frame := append(append(ip, udp...), "abcabcabcabcabcabcabcabc"[:3*i]...)
		frame = append(frame, "padding"...)
		copy(b.Arena.Mem[i<<11:], frame)
		b.D = append(b.D, packet.Desc{Off: uint32(i << 11), Len: uint16(len(frame))})
	}
	set, err := literal.Compile([]literal.Pattern{{Bytes: []byte("abc"), Rule: 7}})
	if err != nil {
		t.Fatal(err)
	}
	e := NewCPU(Config{Ops: OpLiterals, Tables: Tables{Literals: set}})
	if err := e.Submit(b); err != nil {
		t.Fatal(err)
	}
	var r MatchReader
	for range 2 {
		for i := range b.D {
			from, to := Window(&b.D[i], b.Bytes(i))
			if i > 0 && (from != 42 || to != 42+3*i) || i == 0 && from != to {
				t.Errorf("packet %d: window %d to %d", i, from, to)
			}
			if i == 3 {
				continue // nobody asks for this one
			}
			if got := r.Of(b, i); len(got) != i || i > 0 && (int(got[0].D) != i || got[0].Rule != 7 || got[0].End != 45) {
				t.Errorf("packet %d: %v", i, got)
			}
		}
	}
	b.D[1].Flags |= packet.FlagMore
	if from, to := Window(&b.D[1], b.Bytes(1)); from != 0 || to != 0 {
		t.Errorf("a packet of several descriptors: %d to %d", from, to)
	}
}
