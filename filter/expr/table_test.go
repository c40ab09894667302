package expr

import (
	"bufio"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/verdicts.txt anew, with libpcap's verdicts")

// tableLinks are the link types of the table.
var tableLinks = []LinkType{
	LinkEthernet, LinkEthernet, LinkEthernet, LinkEthernet, LinkRaw, LinkNull, LinkPPP, LinkLinuxCooked, LinkLinuxCooked2,
	Link80211,
}

const tablePackets = 400

// digest returns how many verdicts are true, and a hash of all.
func digest(verdicts []bool) string {
	h, n := fnv.New64a(), 0
	for _, v := range verdicts {
		b := byte(0)
		if v {
			b, n = 1, n+1
		}
		h.Write([]byte{b})
	}
	return fmt.Sprintf("%d %016x", n, h.Sum64())
}

// TestVerdictTable compares the verdicts of expressions on generated packets with those that libpcap
// without its optimizer gave when the table was written.
func TestVerdictTable(t *testing.T) {
	if *update {
		writeTable(t)
	}
	file, err := os.Open("testdata/verdicts.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	packets := map[LinkType][]pkt{}
	lines := bufio.NewScanner(file)
	rows := 0
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		rows++
		name, rest, _ := strings.Cut(lines.Text(), "\t")
		want, text, _ := strings.Cut(rest, "\t")
		link, ok := ParseLinkType(name)
		if !ok {
			t.Fatalf("unknown link type %q", name)
		}
		if packets[link] == nil {
			packets[link] = zoo(link, tablePackets)
		}
		if got := tableRow(t, text, link, packets[link]); got != want {
			t.Errorf("%q on %s: %s, libpcap says %s", text, name, got, want)
		}
	}
	if rows < 2000 {
		t.Errorf("%d rows", rows)
	}
}

// tableRow judges an expression by Match and by the classic BPF program.
func tableRow(t *testing.T, text string, link LinkType, packets []pkt) string {
	f, err := Compile(text, link, Options{Names: testNames})
	if err != nil {
		return "error"
	}
	prog, err := f.CBPF()
	if err != nil {
		t.Errorf("%q: %v", text, err)
	}
	verdicts := make([]bool, len(packets))
	for i, p := range packets {
		verdicts[i] = f.Match(p.data, int(p.len))
		if c := interpret(prog, p.data, p.len, nil) != 0; c != verdicts[i] {
			t.Errorf("%q on packet %d: the classic BPF program says %v, Match %v", text, i, c, verdicts[i])
		}
	}
	return digest(verdicts)
}

func writeTable(t *testing.T) {
	o := startOracle(t, nil)
	out, err := os.Create("testdata/verdicts.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	fmt.Fprintln(out, "# Verdicts of libpcap 1.11 (commit f26ae497) without optimizer, on the packets of zoo_test.go:")
	fmt.Fprintln(out, "# link type, number of matches and hash of all verdicts, or error; expression.")
	rng := rand.New(rand.NewPCG(5, 5))
	seen := map[string]bool{}
	for rows := 0; rows < 2400; {
		link := tableLinks[rng.IntN(len(tableLinks))]
		g := generator{rng, link}
		q := question{link: link, text: g.expression(rng.IntN(3))}
		v := o.ask(t, q)
		_, err := Compile(q.text, link, q.options())
		if key := link.String() + q.text; seen[key] || (err != nil) != (v.err != "") || strict(v) || v.err != "" && rng.IntN(3) > 0 {
			continue
		} else {
			seen[key] = true
		}
		result := "error"
		if v.err == "" {
			if clobbered(t, q) {
				continue
			}
			var verdicts []bool
			for _, p := range zoo(link, tablePackets) {
				verdicts = append(verdicts, interpret(v.prog, p.data, p.len, nil) != 0)
			}
			result = digest(verdicts)
		}
		rows++
		fmt.Fprintf(out, "%v\t%s\t%s\n", link, result, q.text)
	}
}
