package interop

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/filter/signature"
)

// flowintWords is how many words the rules and datagrams of TestSuricataFlowint have.
const flowintWords = 6

// flowintRules returns rules that change counters and rules that ask for them. None does both: of such rules the order in which
// the programs evaluate them is not the same.
func flowintRules(rng *rand.Rand) string {
	names := []string{"aa", "b.b", "cc/c", "dd"}
	ops := []string{"+,1", "+,2", "-,1", "=,3", "=,aa", "+,dd", "<,3", "<=,2", "==,1", "!=,2", ">=,2", ">,1", ">,aa", "==,dd", "isset", "notset", "isnotset"}
	var text strings.Builder
	for sid := 1; sid <= 120; sid++ {
		fmt.Fprintf(&text, `alert udp any any -> any any (msg:"%d"; content:"word%d"; `, sid, rng.IntN(flowintWords))
		from, to := 0, 6
		if sid%2 == 0 {
			from, to = 6, len(ops)
		}
		for range 1 + rng.IntN(2) {
			fmt.Fprintf(&text, "flowint:%s,%s; ", names[rng.IntN(len(names))], ops[from+rng.IntN(to-from)])
		}
		fmt.Fprintf(&text, "sid:%d;)\n", sid)
	}
	return text.String()
}

// TestSuricataFlowint makes rules of random operations on counters, and flows of datagrams with random words. Each rule has as
// many alerts of each flow in both programs.
func TestSuricataFlowint(t *testing.T) {
	if os.Getenv(suricataOn) == "" {
		t.Skip(suricataOn + " is not set: make interop-suricata")
	}
	program, err := exec.LookPath("suricata")
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(5, 18))
	text := flowintRules(rng)
	dir := t.TempDir()
	file, pcap := filepath.Join(dir, "flowint.rules"), filepath.Join(dir, "all.pcap")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	f := signature.Parse(file, text, nil)
	for _, e := range append(f.Errors, f.Skipped...) {
		t.Fatal(e)
	}
	compiled, err := inspect.Compile(f.Rules)
	if err != nil {
		t.Fatal(err)
	}
	c := &conversation{now: 1e18}
	for flow := range 200 {
		e := ends{netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, 1, byte(flow)}), 4000), netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 1}), 9)}
		for range 1 + rng.IntN(8) {
			c.udp(e, []message{{signature.ToServer, []byte(fmt.Sprintf("a word%d b", rng.IntN(flowintWords)))}})
		}
	}
	writePackets(t, pcap, c.list)
	theirs, _ := runSuricata(t, program, dir, file, pcap)
	mine := runInspect(compiled, c.list)
	if len(theirs) < 1000 {
		t.Errorf("%d pairs of rule and flow", len(theirs))
	}
	for k, n := range theirs {
		if mine[k].alerts != n {
			t.Errorf("%d alerts here, %d of Suricata: flow %v, %s", mine[k].alerts, n, k.a, options(f.Rules[k.sid-1]))
		}
	}
	for k, m := range mine {
		if theirs[k] == 0 {
			t.Errorf("%d alerts here only: flow %v, %s", m.alerts, k.a, options(f.Rules[k.sid-1]))
		}
	}
	t.Logf("%d pairs of rule and flow", len(theirs))
}
