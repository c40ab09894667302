package gpukern

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/millrace/millrace/packet"
)

var update = flag.Bool("update", false, "write testdata/golden.txt anew from the reference")

const goldenFile = "testdata/golden.txt"

const goldenHead = `# What every engine finds. Written by: go test ./gpukern -run Golden -update
# rule SRC DST SPORTS DPORTS PROTO; route PREFIX NEXTHOP; packet HEX[+HEX...]
# find L3 L4 PAYLOAD PROTO FLAGS HASH RULE NEXTHOP
`

// writeGolden makes vectors from a generator and the reference.
func writeGolden(t *testing.T) {
	t.Helper()
	g := newGenerator(2026)
	v := &Vectors{Lists: Lists{Rules: g.rules(12), Routes: g.routes(12)}}
	v.Lists.Rules = append(v.Lists.Rules, Rule{Proto: 6}, Rule{DstPorts: PortRange(0, 1023)})
	for i := range 160 {
		p := g.packet()
		if i%2 == 0 {
			p = g.damage(p)
		}
		v.Packets = append(v.Packets, g.split(p[:min(len(p), 200)]))
	}
	b := batchOf(v.Packets...)
	Reference(b, OpsHeader, v.Lists)
	v.Finds = finds(b)
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

func TestGoldenVectors(t *testing.T) {
	if *update {
		writeGolden(t)
	}
	text, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	v, err := ReadVectors(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := append([]byte(goldenHead), v.Bytes()...); !bytes.Equal(got, text) {
		t.Error("what is read, written out, differs from the file")
	}
	b := batchOf(v.Packets...)
	ref := batchOf(v.Packets...)
	if err := NewCPU(Config{Tables: v.Lists.compile(t)}).Submit(b); err != nil {
		t.Fatal(err)
	}
	Reference(ref, OpsHeader, v.Lists)
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
	} {
		if _, err := ReadVectors(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
