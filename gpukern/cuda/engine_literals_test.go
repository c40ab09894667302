package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/flow"
	"github.com/millrace/millrace/gpukern/literal"
	"github.com/millrace/millrace/packet"
)

// wanted are what is searched for; wordTables compiles some of them.
var wanted = []string{"millrace", "weir", "sluice", "spillway", "tailrace"}

func wordTables(t testing.TB, seed int) gpukern.Tables {
	t.Helper()
	var patterns []literal.Pattern
	for i, w := range wanted[:2+seed%3] {
		patterns = append(patterns, literal.Pattern{Bytes: []byte(w), Rule: uint32(10*seed + i + 1)})
	}
	set, err := literal.Compile(patterns)
	if err != nil {
		t.Fatal(err)
	}
	tables := someTables(t, seed)
	tables.Literals = set
	return tables
}

// literalBed is an engine that searches payloads which are full of the words, with streams or without.
func literalBed(t *testing.T, streams bool) *engineBed {
	t.Helper()
	return literalBedOn(t, openFakeOnly, streams)
}

func literalBedOn(t *testing.T, on opener, streams bool) *engineBed {
	t.Helper()
	newStreams := func() *gpukern.Streams {
		s, err := gpukern.NewStreams(8000)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	newFlows := func() *flow.Table {
		f, err := flow.New(flow.Config{Flows: 5000, Seed: 3})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	b := newEngineBedOn(t, on, func(c *Config) {
		c.Ops = gpukern.OpsHeader | gpukern.OpLiterals
		c.Tables, c.MatchLimit, c.searchThreads, c.Search = wordTables(t, 1), 5, 64, 800
		unkept(c)
		c.every = 20 * time.Millisecond // a loss is noticed
		if streams {
			c.Ops |= gpukern.OpFlow
			c.Streams, c.Flows = newStreams(), newFlows()
		}
	})
	if streams {
		cfg := b.e.cfg.Config
		cfg.Streams, cfg.Flows = newStreams(), newFlows()
		b.oracle = gpukern.NewCPU(cfg)
		b.flows = map[uint32]uint32{}
	}
	text := []byte("spillway-weirweirmillraceSLUICEweir-tailracetailracemill")
	for i := range bedFrames {
		frame := b.arena.Mem[i<<11:][:2048]
		for at := 50; at+len(text) < 200; at += len(text) { // headers stay; some packets begin within a word
			copy(frame[at+b.rng.IntN(8):], text)
		}
	}
	return b
}

func TestEngineFindsLiterals(t *testing.T) {
	for _, streams := range []bool{false, true} {
		t.Run(fmt.Sprintf("streams %v", streams), func(t *testing.T) {
			onBoth(t, func(t *testing.T, on opener) { testLiterals(literalBedOn(t, on, streams)) })
		})
	}
}

func testLiterals(b *engineBed) {
	for step := range 40 {
		if step%15 == 14 {
			b.load([]gpukern.Tables{wordTables(b.t, 2), someTables(b.t, 2)}[step/15%2]) // with literals, and without
		}
		b.submit(b.batch([]int{64, 1, 200, 0, 700}[step%5], step%2 == 0))
		if step%3 == 2 || len(b.inside) == b.e.cfg.Depth {
			b.drain()
		}
	}
	b.drain()
	b.healthy()
	if b.matches < 1000 {
		b.t.Errorf("only %d matches", b.matches)
	}
}

// TestEngineFindsLiteralsWithoutAList has packets of one descriptor each: the device finds the texts.
func TestEngineFindsLiteralsWithoutAList(t *testing.T) {
	b := literalBed(t, false)
	for n := range 4 {
		batch := b.batch(100, n%2 == 0)
		for i := range batch.D {
			batch.D[i].Flags = 0
		}
		before := b.drv.Calls("cuLaunchKernel")
		b.submit(batch)
		b.drain()
		if n := b.drv.Calls("cuLaunchKernel") - before; n != 3 {
			t.Errorf("%d launches: the host lists the texts", n)
		}
	}
	b.healthy()
	if b.matches < 100 {
		t.Errorf("only %d matches", b.matches)
	}
}

// TestSearchHasALimit refuses a batch that is larger than what was prepared for, and takes one that is not.
func TestSearchHasALimit(t *testing.T) {
	b := literalBed(t, false)
	n := b.e.cfg.Search
	if err := b.e.Submit(b.batch(n+1, true)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%v", err)
	}
	b.submit(b.batch(n, true))
	b.drain()
	b.healthy()
}

// udpFrame writes a UDP packet of the one flow into a frame and returns its length.
func (b *engineBed) udpFrame(i int, text string) uint16 {
	frame := b.arena.Mem[i<<11:][:2048]
	clear(frame)
	copy(frame[12:], []byte{8, 0, 0x45, 0, 0, byte(28 + len(text)), 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2})
	copy(frame[34:], []byte{0, 9, 0, 9, 0, byte(8 + len(text)), 0, 0})
	return uint16(42 + copy(frame[42:], text))
}

// TestLossWhileSearching loses the device at every stage of batches that are searched along a stream. Each
// packet ends in the first half of a word whose second half the next one begins with, and the words take
// turns: a batch that went into the streams twice, or out of order, finds others.
func TestLossWhileSearching(t *testing.T) {
	total := 0
	for round := range 10 {
		b := literalBed(t, true)
		b.load(wordTables(t, 2)) // four of the words
		var size [5]uint16
		for i, w := range wanted {
			next := wanted[(i+1)%len(wanted)]
			size[i] = b.udpFrame(i, w[len(w)/2:]+"-"+next[:len(next)/2])
		}
		var sent []*packet.Batch
		var want [][]packet.Match
		for at := range 5 {
			batch := packet.NewBatch(b.arena, 61)
			for i := range 61 {
				k := (61*at + i) % 5
				batch.Append(packet.Desc{Off: uint32(k) << 11, Len: size[k]})
			}
			ref := &packet.Batch{Arena: b.arena, D: slices.Clone(batch.D)}
			if err := b.oracle.Submit(ref); err != nil {
				t.Fatal(err)
			}
			b.oracle.Poll(b.done[:])
			want = append(want, slices.Clone(ref.Matches))
			sent = append(sent, batch)
			if err := b.e.Submit(batch); err != nil {
				t.Fatal(err)
			}
		}
		lists := b.listsUntil(round / 2)
		b.drv.Lose(illegalAddress)
		b.noticed()
		for i, batch := range sent {
			if b.e.Poll(b.done[:1]) != 1 || b.done[0] != batch {
				t.Fatal("a batch is missing")
			}
			// What was listed goes on from the device's streams. Behind, the CPU's flow may be another one.
			if i < lists && !slices.Equal(batch.Matches, want[i]) || len(batch.Matches) < len(want[i])-1 {
				t.Fatalf("round %d, batch %d of %d lists: %d matches, want %d", round, i, lists, len(batch.Matches), len(want[i]))
			}
		}
		total += lists
	}
	if total == 0 {
		t.Error("no list was ever made before the loss")
	}
}

// listsUntil has the engine list texts until n batches are listed, and returns how many are.
func (b *engineBed) listsUntil(n int) int {
	for end := time.Now().Add(10 * time.Second); b.e.flights.listed < n && time.Now().Before(end); {
		b.e.post() // lists are made as headers come in
	}
	lists := 0
	for i := range b.e.flights.held {
		if b.e.flights.at(i).listed {
			lists++
		}
	}
	return lists
}

// TestSearchLaunchesNoMoreThanNeeded counts launches: header pass, search and mark for a batch whose texts the
// device finds; another search and mark where the host lists them behind.
func TestSearchLaunchesNoMoreThanNeeded(t *testing.T) {
	b := literalBed(t, false)
	for more, want := range []int{3, 5} {
		batch := b.batch(50, true)
		for i := range batch.D {
			batch.D[i].Flags = 0
		}
		batch.D[7].Flags = packet.FlagMore * packet.Flags(more)
		before := b.drv.Calls("cuLaunchKernel")
		b.submit(batch)
		b.drain()
		if n := b.drv.Calls("cuLaunchKernel") - before; n != want {
			t.Errorf("%d launches, want %d", n, want)
		}
	}
}

// TestStreamsGoOnAfterALoss sends words in two packets each: before a loss, across it, where the word is
// found if the flow happens to get the slot that it had, and behind it.
func TestStreamsGoOnAfterALoss(t *testing.T) {
	b := literalBed(t, true)
	send := func(text string) []packet.Match {
		size := b.udpFrame(0, text)
		batch := packet.NewBatch(b.arena, 1)
		batch.Append(packet.Desc{Len: size})
		if err := b.e.Submit(batch); err != nil {
			t.Fatal(err)
		}
		for b.e.Poll(b.done[:1]) == 0 {
		}
		return batch.Matches
	}
	if m := send("we"); len(m) != 0 {
		t.Errorf("%v", m)
	}
	if m := send("ir mill"); len(m) != 1 || m[0].End != 44 {
		t.Errorf("a word of two packets: %v", m)
	}
	b.drv.Lose(illegalAddress)
	b.noticed()
	if m := send("race we"); len(m) > 1 || len(m) == 1 && m[0] != (packet.Match{Rule: 11, End: 46}) {
		t.Errorf("across the loss: %v", m)
	}
	if m := send("ir"); len(m) != 1 || m[0].End != 44 {
		t.Errorf("a word of two packets, on the CPU: %v", m)
	}
	if !bytes.Contains(b.arena.Mem[:2048], []byte("ir")) {
		t.Error("the packet was changed")
	}
}
