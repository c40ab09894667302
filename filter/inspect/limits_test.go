package inspect

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/filter/reassembly"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/wire"
)

// The work that the bytes of a direction have paid for is kept up to workSaved, and no further.
func TestPaidWorkIsBounded(t *testing.T) {
	var s side
	s.pay(100)
	if want := -workPerSegment - 100*workPerByte; s.spent != want {
		t.Errorf("after a segment of 100 bytes: %d, want %d", s.spent, want)
	}
	for range 1000 {
		s.pay(1400)
	}
	if s.spent != workAtFirst-workSaved {
		t.Errorf("after many segments: %d, want %d", s.spent, workAtFirst-workSaved)
	}
	s.spent = workAtFirst - 1
	if !s.afford() {
		t.Error("the last unit of work is not afforded")
	}
	if s.spent++; s.afford() {
		t.Error("more work is afforded than was paid for")
	}
}

// A RST or FIN counts inline where the receiver takes it: at the sequence number that comes next, or before the first. In
// captures all count.
func TestEndsThatTheReceiverTakes(t *testing.T) {
	var fresh, started side
	started.stream.Start(&reassembly.Config{}, 1000)
	for _, c := range []struct {
		inline bool
		s      *side
		seq    uint32
		want   bool
	}{
		{true, &started, 1000, true},
		{true, &started, 1001, false},
		{true, &started, 999, false},
		{true, &fresh, 77, true},
		{false, &started, 1001, true},
	} {
		e := &Engine{cfg: Config{Inline: c.inline}}
		if got := e.takes(c.s, c.seq); got != c.want {
			t.Errorf("inline %v, started %v, sequence number %d: %v", c.inline, c.s.stream.Started(), c.seq, got)
		}
	}
}

// Looking for memory frees a 64th of all at least, so that the next packet need not look again.
func TestMemoryIsFreedAhead(t *testing.T) {
	g := newGate(t, Config{MemoryBytes: 64 << 10}, dropDawn)
	most := g.e.budget.Max
	if got := g.e.missing(1); got != most/64 {
		t.Errorf("%d bytes are to be freed for one byte, want %d", got, most/64)
	}
	g.e.budget.Charge(most - 10)
	if got, want := g.e.missing(most/64+100), most/64+90; got != want {
		t.Errorf("%d bytes are to be freed, want the %d that are missing", got, want)
	}
}

// A flow that is blocked holds no memory once its next packet has come.
func TestBlockedFlowsAreReleased(t *testing.T) {
	g := newGate(t, Config{}, dropDawn+"\n"+strings.Replace(dropDawn, `content:"attack at dawn"; sid:7`, `content:"POST"; content:"never"; sid:8`, 1))
	g.open()
	empty := g.e.budget.Used()
	head := "POST / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("x", 900)
	next := uint32(1 + len(head))
	g.segment(true, 1, wire.FlagACK, head)
	g.segment(true, next+1000, wire.FlagACK, strings.Repeat("y", 500)) // waits for what lies before it
	if held := g.e.budget.Used(); held < 500 {
		t.Fatalf("%d bytes are held", held)
	}
	g.segment(true, next, wire.FlagACK, "attack at dawn")
	r := g.segment(true, next+14, wire.FlagACK, "more")
	if f := g.e.oldest; !r.Blocked || f == nil || f.proto != nil || f.sides[0].pending != nil || f.sides[0].stream.Queued() != 0 {
		t.Fatalf("%+v", r)
	}
	if got := g.e.budget.Used(); got > empty {
		t.Errorf("%d bytes are held by a blocked flow, %d before its first", got, empty)
	}
}

// A rule looks at the directions that its flow option, its buffers and ftpbounce leave.
func TestRulesKnowTheirDirections(t *testing.T) {
	for _, c := range []struct {
		head, options string
		want          signature.Direction
	}{
		{"tcp", `content:"a";`, signature.BothWays},
		{"tcp", `flow:to_client; content:"a";`, signature.ToClient},
		{"tcp", `flow:to_server; content:"a";`, signature.ToServer},
		{"http", `http.uri; content:"a";`, signature.ToServer},
		{"http", `http.stat_code; content:"200";`, signature.ToClient},
		{"http", `http.header; content:"a";`, signature.BothWays},
		{"ftp", `ftpbounce;`, signature.ToServer},
	} {
		f := signature.Parse("test", "alert "+c.head+" any any -> any any ("+c.options+" sid:1;)", nil)
		for _, e := range append(f.Errors, f.Skipped...) {
			t.Fatal(e)
		}
		if q := newRule(f.Rules[0], newNumbering(nil)); q.dir != c.want {
			t.Errorf("%s %s: directions %v, want %v", c.head, c.options, q.dir, c.want)
		}
	}
}
