package gpukern_test

import (
	"bytes"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	. "github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/acl"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/packet"
)

var update = flag.Bool("update", false, "write testdata/golden.txt anew from the reference")

const goldenFile = "testdata/golden.txt"

const goldenHead = `# What every engine finds. Written by: go test ./gpukern -run Golden -update
# rule SRC DST SPORTS DPORTS PROTO; route PREFIX NEXTHOP; packet HEX[+HEX...]
# find L3 L4 PAYLOAD PROTO FLAGS HASH RULE NEXTHOP
# literal RULE exact|nocase HEX; match PIECE RULE END
`

// writeGolden makes vectors from a generator and the reference.
func writeGolden(t *testing.T) {
	t.Helper()
	g := kernref.NewGenerator(2026)
	v := &kernref.Vectors{Lists: kernref.Lists{Rules: g.Rules(12), Routes: g.Routes(12)}}
	v.Lists.Rules = append(v.Lists.Rules, acl.Rule{Proto: 6}, acl.Rule{DstPorts: acl.PortRange(0, 1023)})
	for i := range 160 {
		p := g.Packet()
		if i%2 == 0 {
			p = g.Damage(p)
		}
		v.Packets = append(v.Packets, g.Split(p[:min(len(p), 200)]))
	}
	v.Lists.Literals = g.Patterns(40)
	for i, pieces := range v.Packets {
		b := kernref.BatchOf(pieces)
		if i%3 == 0 {
			g.Plant(b, v.Lists.Literals)
		}
		for k := range pieces {
			pieces[k] = b.Bytes(k)
		}
	}
	for range 3 {
		p := udp(1, 2, 9, g.Letters(60)) // more matches than the limit
		v.Packets = append(v.Packets, kernref.One(p), [][]byte{p[:50], p[50:70], p[70:]})
	}
	b := kernref.BatchOf(v.Packets...)
	kernref.Reference(b, OpsHeader|OpLiterals, v.Lists)
	v.Finds, v.Matches = finds(b), matches(b)
	if err := os.MkdirAll("testdata", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(goldenFile, append([]byte(goldenHead), v.Bytes()...), 0o644); err != nil {
		t.Fatal(err)
	}
}

// finds returns what the descriptor of each packet says, without what the driver wrote.
func finds(b *packet.Batch) []packet.Desc {
	var all []packet.Desc
	for i := 0; i < len(b.D); i++ {
		d := b.D[i]
		d.Off, d.Len, d.Flags = 0, 0, d.Flags&^packet.FlagMore
		all = append(all, d)
		for b.D[i].Flags&packet.FlagMore != 0 {
			i++
		}
	}
	return all
}

// matches returns the matches of each packet, with D counting its pieces.
func matches(b *packet.Batch) (all [][]packet.Match) {
	left := b.Matches
	for i := 0; i < len(b.D); {
		_, _, next := kernref.WholePacket(b, i)
		var here []packet.Match
		for ; len(left) > 0 && int(left[0].D) < next; left = left[1:] {
			m := left[0]
			m.D -= uint32(i)
			here = append(here, m)
		}
		all = append(all, here)
		i = next
	}
	return all
}

func TestGoldenVectors(t *testing.T) {
	if *update {
		writeGolden(t)
	}
	text, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	v, err := kernref.ReadVectors(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := append([]byte(goldenHead), v.Bytes()...); !bytes.Equal(got, text) {
		t.Error("what is read, written out, differs from the file")
	}
	b := kernref.BatchOf(v.Packets...)
	ref := kernref.BatchOf(v.Packets...)
	if err := NewCPU(Config{Ops: OpsHeader | OpLiterals, Tables: compile(t, v.Lists)}).Submit(b); err != nil {
		t.Fatal(err)
	}
	kernref.Reference(ref, OpsHeader|OpLiterals, v.Lists)
	if d := cmp.Diff(matches(b), v.Matches); d != "" {
		t.Errorf("matches: engine -, want +:\n%s", d)
	}
	if d := cmp.Diff(matches(ref), v.Matches); d != "" {
		t.Errorf("matches: reference -, want +:\n%s", d)
	}
	var last, many int // matches that do not end in the first piece, and limits that are reached
	for _, m := range slices.Concat(v.Matches...) {
		last += int(min(m.D, 1))
		many += 1 - int(min(m.Rule, 1))
	}
	if last < 20 || many < 3 {
		t.Errorf("the vectors have only %d matches in later pieces, and %d times too many", last, many)
	}
	var union packet.Flags
	for i, want := range v.Finds {
		union |= want.Flags
		if got := finds(b)[i]; got != want {
			t.Errorf("packet %d: engine %+v, want %+v", i, got, want)
		}
		if got := finds(ref)[i]; got != want {
			t.Errorf("packet %d: reference %+v, want %+v", i, got, want)
		}
	}
	if every := packet.FlagMore - 1; union != every {
		t.Errorf("the vectors never have flags %b", every&^union)
	}
}

func TestVectorsThatCannotBeReadAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"packet 0":                     "line 1",
		"\nfoo":                        `line 2: "foo" is neither`,
		"rule any any any":             "5 words",
		"rule 1.2.3.4 any any any any": "line 1",
		"rule any any 1 any any":       "line 1",
		"rule any any any any x":       "line 1",
		"route 10.0.0.0/8":             "line 1",
		"route 10.0.0.0 1":             "line 1",
		"find 1 2 3":                   "line 1",
		"ops parse+fly":                `no operation is named "fly"`,
		"match 0 1 2":                  "before any packet",
		"packet 00\nmatch 0 1":         "line 2",
		"literal 1 exact":              "line 1",
		"literal 1 exact 0":            "line 1",
		"literal 1 any 414243":         `"any" is neither exact nor nocase`,
	} {
		if _, err := kernref.ReadVectors(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
