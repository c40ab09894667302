package node

import (
	"log/slog"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/cuda"
	"github.com/millrace/millrace/gpukern/literal"
	"github.com/millrace/millrace/internal/testkit/hostkern"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/wire"
)

func setOf(t *testing.T, word string) *literal.Set {
	t.Helper()
	s, err := literal.Compile([]literal.Pattern{{Bytes: []byte(word), Rule: 1}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// searching opens a node with an engine that searches for literals, if there is a GPU. Closing fault takes it away.
func searching(t *testing.T, cfg Config) *Node {
	t.Helper()
	n := &Node{log: slog.New(slog.DiscardHandler), cfg: cfg}
	if err := n.openEngine(); err != nil {
		t.Fatal(err)
	}
	var err error
	if n.arena, err = ring.NewArena(ring.ArenaConfig{Frames: 64}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.addEngine(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, close := range []func() error{n.engines[0].Close, n.arena.Close, n.opener.Close} {
			if err := close(); err != nil {
				t.Error(err)
			}
		}
	})
	return n
}

// find has the engine search a datagram with the words weir and sluice, and returns the set and the end of the match.
func (n *Node) find(t *testing.T) (set uint64, end uint32) {
	t.Helper()
	text := []byte("a weir and a sluice")
	frame := wire.AppendEthernet(nil, wire.MAC{2}, wire.MAC{4}, wire.EtherTypeIPv4)
	frame = wire.AppendIPv4(frame, &wire.IPv4Header{PayloadLen: wire.UDPLen + len(text), TTL: 1, Proto: wire.ProtoUDP})
	frame = append(wire.AppendUDP(frame, 1, 2, len(text)), text...)
	b := packet.NewBatch(n.arena.View(), 1)
	b.Append(packet.Desc{Len: uint16(copy(n.arena.View().Mem, frame))})
	if err := n.engines[0].Submit(b); err != nil {
		t.Fatal(err)
	}
	for done := make([]*packet.Batch, 1); n.engines[0].Poll(done) == 0; {
	}
	if len(b.Matches) > 0 {
		end = b.Matches[0].End - 42
	}
	return b.Searched, end
}

// TestLiteralsOnGPU replaces the set of a GPU, before and after that is lost.
func TestLiteralsOnGPU(t *testing.T) {
	drv := hostkern.OpenDriver(t)
	fault := make(chan struct{})
	first, second, third := setOf(t, "weir"), setOf(t, "sluice"), setOf(t, "and")
	n := searching(t, Config{
		Engine: "cuda", Ops: gpukern.OpParse, SearchOnGPU: true, Literals: first,
		GPU: cuda.Options{Library: drv.Path, Management: drv.Path, Patience: time.Minute, Fault: fault},
	})
	if !n.SearchesOnGPU() {
		t.Fatal("it does not search")
	}
	check := func(want *literal.Set, end uint32) {
		t.Helper()
		if set, at := n.find(t); set != want.ID() || at != end {
			t.Errorf("searched for set %d, a match that ends at %d; want %d, %d", set, at, want.ID(), end)
		}
	}
	check(first, 6)
	if err := n.LoadLiterals(second); err != nil {
		t.Fatal(err)
	}
	check(second, 19)
	if err := n.LoadLiterals(nil); err != nil {
		t.Fatal(err)
	}
	check(nil, 0)
	if err := n.LoadLiterals(second); err != nil {
		t.Fatal(err)
	}
	check(second, 19)
	close(fault)
	for end := time.Now().Add(20 * time.Second); n.engines[0].Info().Fault == ""; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the fault is not noticed")
		}
	}
	drv.Lose(700) // what it holds is gone with it
	check(second, 19)
	if err := n.LoadLiterals(third); err != nil {
		t.Fatal(err)
	}
	check(third, 10)
	if err := n.LoadLiterals(nil); err != nil {
		t.Fatal(err)
	}
	check(nil, 0)
}

// TestLiteralsComeToAGPUThatHadNone starts without literals, as a gateway without rules does.
func TestLiteralsComeToAGPUThatHadNone(t *testing.T) {
	drv := hostkern.OpenDriver(t)
	n := searching(t, Config{
		Engine: "cuda", Ops: gpukern.OpParse, SearchOnGPU: true,
		GPU: cuda.Options{Library: drv.Path, Management: drv.Path, Patience: time.Minute},
	})
	for range 3 {
		if set, at := n.find(t); set != 0 || at != 0 {
			t.Errorf("without literals: set %d, a match that ends at %d", set, at)
		}
	}
	set := setOf(t, "sluice")
	if err := n.LoadLiterals(set); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got, at := n.find(t); got != set.ID() || at != 19 {
			t.Errorf("searched for set %d, a match that ends at %d; want %d, 19", got, at, set.ID())
		}
	}
}

// TestNothingIsSearchedWithoutAGPU has the readers of matches search what they need.
func TestNothingIsSearchedWithoutAGPU(t *testing.T) {
	for _, engine := range []string{"cpu", "auto"} {
		n := searching(t, Config{
			Engine: engine, Ops: gpukern.OpParse, SearchOnGPU: true, Literals: setOf(t, "weir"),
			GPU: cuda.Options{Library: "/nonexistent/libcuda.so.1"},
		})
		if err := n.LoadLiterals(setOf(t, "sluice")); err != nil || n.SearchesOnGPU() {
			t.Errorf("%s: searches on a GPU: %v, %v", engine, n.SearchesOnGPU(), err)
		}
		if set, end := n.find(t); set != 0 || end != 0 {
			t.Errorf("%s: searched for set %d, match at %d", engine, set, end)
		}
	}
}
