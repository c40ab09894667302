package interop

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/filter/signature"
)

// generatedRules is how many rules TestSuricataGenerated takes of all; the environment may say another number.
const (
	generatedRules = 3000
	generatedVar   = "MILLRACE_SURICATA_SAMPLE"
	perRule        = 6 // conversations: two as the rule asks, the others not quite
)

// TestSuricataGenerated makes conversations for a sample of rules: some that each rule is about, and some that differ from
// them in one place. Suricata says which of them match.
func TestSuricataGenerated(t *testing.T) {
	if os.Getenv(suricataOn) == "" {
		t.Skip(suricataOn + " is not set: make interop-suricata")
	}
	program, err := exec.LookPath("suricata")
	if err != nil {
		t.Fatal(err)
	}
	rules, file := suricataRuleFile(t)
	rng := rand.New(rand.NewPCG(18, 4))
	if os.Getenv(suricataRules) == "" { // else there are enough
		more := randomRules(t, rng, 400, file)
		rules = append(rules, more...)
	}
	compiled, err := inspect.Compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	sample := sampleOf(t, rules, rng)
	c := &conversation{now: 1e18}
	of := map[pair]generated{} // by flow
	for i, r := range sample {
		for k := range perRule {
			c.generate(r, i*perRule+k, k, rules, rng, of)
		}
	}
	dir := t.TempDir()
	pcap := filepath.Join(dir, "all.pcap")
	writePackets(t, pcap, c.list)
	theirs, _ := runSuricata(t, program, dir, file, pcap)
	mine := runInspect(compiled, c.list)
	reportGenerated(t, rules, sample, theirs, mine, of)
}

// generated is what a flow was made for.
type generated struct {
	sid uint32
	how change
}

// sampleOf returns rules of all kinds of keywords.
func sampleOf(t *testing.T, rules []*signature.Rule, rng *rand.Rand) []*signature.Rule {
	n := generatedRules
	if s := os.Getenv(generatedVar); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	list := slices.DeleteFunc(slices.Clone(rules), func(r *signature.Rule) bool { return len(r.Parts) == 0 })
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:min(n, len(list))]
}

// generate writes the k-th conversation for a rule.
func (c *conversation) generate(r *signature.Rule, n, k int, rules []*signature.Rule, rng *rand.Rand, of map[pair]generated) {
	s := &synth{rng: rng, at: -1}
	if k >= 2 {
		tests := 0
		for i := range r.Parts {
			tests += len(r.Parts[i].Tests)
		}
		s.at, s.how = rng.IntN(tests), 1+change(rng.IntN(int(noChange)-1))
	}
	var list []message
	for _, b := range r.Bits {
		if b.Op == signature.IsSet && b.Track == signature.TrackFlow {
			if setter := setterOf(rules, b.Names[0]); setter != nil && setter.Protocol.IP&r.Protocol.IP != 0 {
				list = append(list, (&synth{rng: rng, at: -1}).messages(setter)...)
			}
		}
	}
	list = append(list, s.messages(r)...)
	e := endsOf(r, n, rng)
	kind := "tcp"
	switch {
	case r.Protocol.IP&signature.TCP != 0 && (r.Protocol.App != signature.AppDNS || r.Protocol.IP&signature.UDP == 0):
		c.tcp(e, list)
	case r.Protocol.IP&signature.UDP != 0:
		kind = "udp"
		if r.Flow.Dir == signature.ToClient {
			list = append([]message{{signature.ToServer, []byte("j")}}, list...)
		}
		c.udp(e, list)
	case r.Protocol.IP&signature.ICMP != 0:
		kind = "icmp"
		c.icmp(e, r, list)
	default:
		return
	}
	of[pairOf(0, kind, e.client.Addr(), e.server.Addr(), e.client.Port(), e.server.Port())] = generated{r.SID, s.how}
}

func setterOf(rules []*signature.Rule, name string) *signature.Rule {
	for _, r := range rules {
		for _, b := range r.Bits {
			if b.Op == signature.Set && slices.Contains(b.Names, name) && len(r.Parts) > 0 {
				return r
			}
		}
	}
	return nil
}

// keywordsOf returns what a rule uses.
func keywordsOf(r *signature.Rule) []string {
	seen := map[string]bool{"protocol " + r.Protocol.Name: true}
	for o := range strings.SplitSeq(options(r), ";") {
		k, _, _ := strings.Cut(strings.TrimSpace(o), ":")
		if k != "" && !strings.ContainsAny(k, "|\" /\\") {
			seen[k] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// tally counts the rules of a keyword and their pairs.
type tally struct{ rules, matched, both, theirs, mine int }

// logTallies writes what each keyword has, and each pair of one program alone.
func logTallies(t *testing.T, byKeyword map[string]*tally, why map[string][]string) {
	t.Helper()
	t.Log("keyword: rules in the sample, matched in Suricata; pairs of both, of Suricata alone, of Millrace alone")
	for _, k := range slices.SortedFunc(maps.Keys(byKeyword), func(a, b string) int { return byKeyword[b].rules - byKeyword[a].rules }) {
		c := byKeyword[k]
		t.Logf("%s: %d, %d; %d, %d, %d", k, c.rules, c.matched, c.both, c.theirs, c.mine)
	}
	for who, list := range why {
		slices.Sort(list)
		for _, l := range list {
			t.Logf("%s: %s", who, l)
		}
	}
}

// reportGenerated compares the pairs, and counts by keyword.
func reportGenerated(t *testing.T, rules, sample []*signature.Rule, theirs map[pair]int, mine map[pair]mineOf, of map[pair]generated) {
	t.Helper()
	byKeyword := map[string]*tally{}
	bySID := map[uint32]*signature.Rule{}
	for _, r := range rules {
		bySID[r.SID] = r
	}
	count := func(sid uint32, f func(*tally)) {
		for _, k := range append(keywordsOf(bySID[sid]), "all") {
			if byKeyword[k] == nil {
				byKeyword[k] = &tally{}
			}
			f(byKeyword[k])
		}
	}
	matched := map[uint32]bool{}
	why := map[string][]string{}
	note := func(who string, k pair) {
		flow := k
		flow.sid = 0
		g := of[flow]
		why[who] = append(why[who], fmt.Sprintf("%d in a flow for %d (%v) %v %v: %.300s", k.sid, g.sid, g.how, k.a, k.b, options(bySID[k.sid])))
	}
	for k := range theirs {
		matched[k.sid] = true
		if _, ok := mine[k]; ok {
			count(k.sid, func(c *tally) { c.both++ })
			continue
		}
		count(k.sid, func(c *tally) { c.theirs++ })
		note("Suricata only", k)
	}
	for k := range mine {
		if _, ok := theirs[k]; !ok {
			count(k.sid, func(c *tally) { c.mine++ })
			note("Millrace only", k)
		}
	}
	for _, r := range sample {
		count(r.SID, func(c *tally) {
			c.rules++
			if matched[r.SID] {
				c.matched++
			}
		})
	}
	logTallies(t, byKeyword, why)
	all := byKeyword["all"]
	if bad := all.theirs + all.mine; bad*100 > all.both {
		t.Errorf("%d pairs of both, %d of one alone: more than 1 %%", all.both, bad)
	}
	if all.matched*2 < all.rules {
		t.Errorf("of %d rules %d matched: the conversations are not about them", all.rules, all.matched)
	}
}
