package filter

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/acl"
	"github.com/millrace/millrace/packet"
)

// through sends packets through an engine with the rules of a list, and then through a filter.
func through(t *testing.T, f *Filter, b *packet.Batch) {
	t.Helper()
	e := gpukern.NewCPU(gpukern.Config{Tables: gpukern.Tables{ACL: f.List.ACL()}})
	if err := e.Submit(b); err != nil {
		t.Fatal(err)
	}
	f.Apply(b)
}

func must(t *testing.T, text string) *List {
	t.Helper()
	l, err := Parse("r", text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestActionsAreRead(t *testing.T) {
	for text, want := range map[string]Rule{
		"allow tcp":                              {Match: must(t, "pass tcp").Rules()[0].Match},
		"deny capture":                           {Action: Drop, Capture: true},
		"capture deny":                           {Action: Drop, Capture: true},
		"redirect eth1.7 mark 0x10":              {Action: Redirect, Device: "eth1.7", Mark: 16},
		"mark 4294967295":                        {Mark: 4294967295},
		"rate 5pps":                              {Rate: Rate{PerSecond: 5, Burst: 1}},
		"rate 10kpps burst 3 per source capture": {Rate: Rate{PerSecond: 10000, Burst: 3, PerSource: true}, Capture: true},
		"allow rate 8Mbps":                       {Rate: Rate{PerSecond: 1e6, Burst: 100000, Bytes: true}},
		"rate 1bps":                              {Rate: Rate{PerSecond: 1, Burst: burstBytes, Bytes: true}},
		"rate 8000Gbps":                          {Rate: Rate{PerSecond: 1e12, Burst: MaxBurst, Bytes: true}},
	} {
		if text == "rate 8000Gbps" { // bits are bounded as numbers are
			if _, err := Parse("r", text); err == nil {
				t.Errorf("%s is read", text)
			}
			continue
		}
		want.Text, want.Line, want.File = text, 1, "r"
		if diff := cmp.Diff([]Rule{want}, must(t, text).Rules(), ports, addrs); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

func TestWrongActionsAreShownWhereTheyAre(t *testing.T) {
	for text, want := range map[string]string{
		"allow deny tcp":                  "7: \"deny\" stands behind \"allow\"",
		"redirect to any":                 "13: \"any\" is not a protocol",
		"redirect":                        "9: behind redirect stands a device",
		"redirect a/b":                    "10: behind redirect stands a device",
		"mark 0":                          "6: \"0\" is not a mark",
		"mark x":                          "6: \"x\" is not a mark",
		"rate 10":                         "6: \"10\" is not a rate",
		"rate 0pps":                       "6: \"0pps\" is not a rate",
		"rate 9999999999Mpps":             "6: \"9999999999Mpps\" is not a rate",
		"rate 1pps burst 0":               "17: \"0\" is not a burst, packets",
		"rate 1bps burst 99999999999":     "17: \"99999999999\" is not a burst, bytes",
		"rate 1pps per minute":            "15: behind per stands source",
		"rate 1pps rate 2pps":             "11: a rule has one rate",
		"deny rate 1pps":                  "11: deny drops all packets",
		"group":                           "6: \"\" cannot name a group",
		"group a":                         "7: a group has at least one",
		"group a any":                     "9: any is no address",
		"group a 192.0.2.1\ngroup a ::":   "7: the group a is there already",
		"group aa ::1\nallow to group ab": "16: no line before defines the group \"ab\"; did you mean aa?",
		"list a":                          "6: a list has prefixes",
		"list a 192.0.2.1, any":           "19: any is no address",
		"deny from list a":                "16: no line before defines the list \"a\"",
		`list a file "x"`:                 "13: no files can be read here",
		`list a file x`:                   "13: a file's name stands in double quotes",
		`include "x"`:                     "9: no files can be read here",
		"reject tcp":                      "1: \"reject\" is not supported",
		"allow tcp to any state new":      "18: \"state\" is not supported",
		"group a 192.0.2.1\ngroup b ::1 ::2\nallow from group a to group b": "no source and destination are of one family",
	} {
		_, err := Parse("f", text)
		var s *SyntaxError
		if !errors.As(err, &s) {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := fmt.Sprintf("%d: %s", s.Column, s.Msg); !strings.HasPrefix(got, want) && !strings.HasPrefix(s.Msg, want) {
			t.Errorf("%.60s:\ngot  %s\nwant %s", text, got, want)
		}
	}
}

func TestGroupsMakeARuleForEachPairOfAFamily(t *testing.T) {
	l := must(t, "group a 192.0.2.1, 2001:db8::1\ngroup b group a 198.18.0.0/15\ndeny tcp from group a to group b port 1,2\nallow")
	var got []string
	for _, r := range l.Rules() {
		lo, _, _ := r.Match.DstPorts.Range()
		got = append(got, fmt.Sprintf("%v>%v:%d %d", r.Match.Src, r.Match.Dst, lo, r.Line))
	}
	want := []string{
		"192.0.2.1/32>192.0.2.1/32:1 3", "192.0.2.1/32>192.0.2.1/32:2 3", "192.0.2.1/32>198.18.0.0/15:1 3", "192.0.2.1/32>198.18.0.0/15:2 3",
		"2001:db8::1/128>2001:db8::1/128:1 3", "2001:db8::1/128>2001:db8::1/128:2 3", "invalid Prefix>invalid Prefix:0 4",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestRulesBehindAListDecideWhereItLacksAnAddress has lists in a row, of either end, with groups and ports.
func TestRulesBehindAListDecideWhereItLacksAnAddress(t *testing.T) {
	l := must(t, `list bad 192.0.2.0/28 192.0.2.0/24 192.0.2.0/24
list far 198.19.0.0/16
group g 198.18.0.1 198.19.0.1
deny from list bad to group g port 53,54
mark 7 to list far
mark 8 from list bad to list far
deny to any port 80
mark 9 from 192.0.2.9`)
	f := NewFilter(0, l)
	b := batchOf(
		udp("192.0.2.200", "198.18.0.1", 9, 53), // deny
		udp("192.0.3.1", "198.18.0.1", 9, 53),   // none
		udp("192.0.3.1", "198.19.0.1", 9, 54),   // mark 7
		udp("192.0.2.9", "198.18.0.1", 9, 55),   // mark 9
		udp("192.0.3.1", "198.18.0.1", 9, 80),   // the second deny
		udp("192.0.2.1", "198.19.0.2", 9, 80),   // mark 7
		udp("192.0.3.1", "198.18.0.2", 9, 81),   // none
	)
	through(t, f, b)
	type decided struct {
		Line    int
		Mark    uint32
		Verdict packet.Verdict
	}
	var got []decided
	for i := range b.D {
		line := 0
		if r := f.rule(&b.D[i]); r != nil {
			line = r.Line
		}
		got = append(got, decided{line, f.Mark(&b.D[i]), b.D[i].Verdict})
	}
	want := []decided{{4, 0, packet.DropRule}, {}, {5, 7, 0}, {8, 9, 0}, {7, 0, packet.DropRule}, {5, 7, 0}, {}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if n := testing.AllocsPerRun(100, func() { through2(f, b) }); n != 0 {
		t.Errorf("Apply allocates %v times", n)
	}
}

// through2 applies a filter again.
func through2(f *Filter, b *packet.Batch) {
	for i := range b.D {
		b.D[i].Verdict = packet.Undecided
	}
	f.Apply(b)
}

func TestTooManyLinesWithLists(t *testing.T) {
	line := "deny from list a to 198.18.0.%d\n"
	text := "list a 192.0.2.1\n"
	for i := range maxListLines {
		text += fmt.Sprintf(line, i)
	}
	must(t, text)
	if _, err := Parse("r", text+fmt.Sprintf(line, 200)); err == nil || !strings.Contains(err.Error(), "more than 64 lines") {
		t.Errorf("%v", err)
	}
}

func TestRedirectGoesToADeviceOrIsADrop(t *testing.T) {
	l := must(t, "redirect b to any port 1\nredirect a to any port 2\nredirect b to any port 3")
	if diff := cmp.Diff([]string{"b", "a"}, l.Devices()); diff != "" {
		t.Error(diff)
	}
	f := NewFilter(0, l)
	f.Ports = []uint8{5, NoPort}
	b := batchOf(udp("192.0.2.1", "198.18.0.1", 9, 1), udp("192.0.2.1", "198.18.0.1", 9, 2), udp("192.0.2.1", "198.18.0.1", 9, 3))
	through(t, f, b)
	for i, want := range []packet.Verdict{packet.Forward, packet.DropLinkDown, packet.Forward} {
		if d := b.D[i]; d.Verdict != want || want == packet.Forward && d.Port != 5 {
			t.Errorf("packet %d: %v to %d", i, d.Verdict, d.Port)
		}
	}
}

func TestCaptureIsAskedForByTheRuleThatDecides(t *testing.T) {
	f := NewFilter(CheckMalformed, must(t, "deny capture to any port 1\ndeny to any port 2"))
	b := batchOf(udp("192.0.2.1", "198.18.0.1", 9, 1), udp("192.0.2.1", "198.18.0.1", 9, 2), udp("192.0.2.1", "198.18.0.1", 9, 3))
	through(t, f, b)
	for i, want := range []bool{true, false, false} {
		if got := f.Captures(&b.D[i]); got != want {
			t.Errorf("packet %d: %v", i, got)
		}
	}
}

// sent sends packets of one flow at a rate in virtual time and returns how many pass.
func sent(t *testing.T, f *Filter, from string, n int, start, gap time.Duration) (passed int) {
	t.Helper()
	for i := range n {
		b := batchOf(udp(from, "198.18.0.1", 9, 53))
		b.Base = int64(start) + int64(i)*int64(gap)
		b.D[0].Stamp = uint32(b.Base)
		through(t, f, b)
		switch b.D[0].Verdict {
		case packet.Undecided:
			passed++
		case packet.DropRateLimit:
		default:
			t.Fatal(b.D[0].Verdict)
		}
	}
	return passed
}

func TestRatesPassWhatTheySay(t *testing.T) {
	for _, tc := range []struct {
		rule string
		gap  time.Duration
		n    int
		want int
	}{
		{"rate 100pps burst 10", time.Millisecond, 1000, 10 + 99},     // 999 ms: the burst, and 99.9 tokens
		{"rate 100pps burst 10", 20 * time.Millisecond, 100, 100},     // below the rate
		{"rate 1pps burst 1", time.Second, 5, 5},                      // at the rate
		{"rate 3pps burst 1", 333333333, 4, 2},                        // just faster than the rate: a token and 2 more in 10^9
		{"rate 3pps burst 1", 333333334, 4, 4},                        // just slower
		{"rate 3360bps burst 420", 100 * time.Millisecond, 20, 28},    // all: 42 B of 42 B for each
		{"rate 1680bps burst 84", 100 * time.Millisecond, 21, 2 + 10}, // a half
	} {
		want := min(tc.want, tc.n)
		if got := sent(t, NewFilter(0, must(t, tc.rule)), "192.0.2.1", tc.n, time.Hour, tc.gap); got != want {
			t.Errorf("%s, a packet each %v: %d of %d pass, want %d", tc.rule, tc.gap, got, tc.n, want)
		}
	}
}

func TestARateIsOfALineAndOfASource(t *testing.T) {
	f := NewFilter(0, must(t, "rate 1pps burst 3 to any port 53,54 name \"all\"\n"))
	if n := sent(t, f, "192.0.2.1", 5, 0, 0) + sent(t, f, "192.0.2.2", 5, 0, 0); n != 3 {
		t.Errorf("%d pass the rate of a line", n)
	}
	if f.Hits[0] != 10 || f.Over[0] != 7 {
		t.Errorf("hits %v, over %v", f.Hits, f.Over)
	}
	f = NewFilter(0, must(t, "rate 1pps burst 3 per source"))
	for _, from := range []string{"192.0.2.1", "192.0.2.2"} {
		if n := sent(t, f, from, 5, 0, 0); n != 3 {
			t.Errorf("%d of %s pass", n, from)
		}
	}
	if n := sent(t, f, "192.0.2.1", 5, 2*time.Second, 0); n != 2 {
		t.Errorf("%d pass after 2 s", n)
	}
	if n := sent(t, f, "192.0.2.1", 5, time.Second, 0); n != 0 { // time goes back
		t.Errorf("%d pass at an earlier time", n)
	}
}

// TestManySourcesKeepTheirBuckets fills the table: who is counted stays so, and others find no place until buckets
// are full again.
func TestManySourcesKeepTheirBuckets(t *testing.T) {
	l := must(t, "rate 1pps burst 2 per source\n")
	s := sources{seed: 99}
	taken := 0
	for i := range uint64(4 * sourcesMost) {
		if b := s.find(l.rates, 0, i, 0, true, 0); b != nil {
			b.take(&l.rates[0], 1, 0)
			taken++
		}
	}
	if taken < sourcesMost*8/10 || taken > sourcesMost {
		t.Errorf("%d of %d places are used", taken, sourcesMost)
	}
	if b := s.find(l.rates, 0, 1, 0, true, 0); b == nil || b.tokens != 1e9 {
		t.Errorf("the second source has %+v", b)
	}
	if b := s.find(l.rates, 0, 1, 0, false, 0); b != nil && b.tokens != 2e9 {
		t.Error("an IPv6 address has the bucket of an IPv4 address")
	}
	crowded := 0
	for i := range uint64(1000) {
		if s.find(l.rates, 0, 1<<40+i, 0, true, 2e9) == nil { // a second and more later all are full
			crowded++
		}
	}
	if crowded != 0 {
		t.Errorf("%d find no place among full buckets", crowded)
	}
}

func TestASwapKeepsCountersAndBucketsOfLinesThatStay(t *testing.T) {
	f := NewFilter(0, must(t, "deny from 192.0.2.99\nrate 1pps burst 3 per source to any port 53\nrate 1pps burst 4 from 192.0.2.7"))
	f.Seed = 5
	sent(t, f, "192.0.2.1", 5, 0, 0)
	sent(t, f, "192.0.2.1", 1, 0, 0)
	f.Swap(must(t, "allow from 192.0.2.50\nrate 1pps burst 9 from 192.0.2.8\nrate 1pps burst 3 per source to any port 53"))
	if diff := cmp.Diff([]uint64{0, 0, 6}, f.Hits); diff != "" {
		t.Error(diff)
	}
	if n := sent(t, f, "192.0.2.1", 5, 0, 0); n != 0 {
		t.Errorf("%d pass: the bucket is a new one", n)
	}
	if n := sent(t, f, "192.0.2.8", 12, 0, 0); n != 9 {
		t.Errorf("%d pass the new line", n)
	}
	if n := sent(t, f, "192.0.2.1", 5, time.Second, 0); n != 1 {
		t.Errorf("%d pass a second later", n)
	}
	f.Swap(must(t, "rate 1pps burst 9 from 192.0.2.8"))
	if n := sent(t, f, "192.0.2.8", 12, time.Second, 0); n != 1 {
		t.Errorf("%d pass the line whose bucket was empty a second ago", n)
	}
	f.Swap(nil)
	f.Apply(batchOf(udp("192.0.2.1", "198.18.0.1", 1, 53)))
}

// TestSwapsUnderLoadLoseNothing swaps rules 500 times between batches: every packet has the verdict of the rules that
// the engine had.
func TestSwapsUnderLoadLoseNothing(t *testing.T) {
	lists := []*List{must(t, "list a 192.0.2.0/24\nmark 1 from list a"), must(t, "deny from 10.0.0.0/8\ngroup g 192.0.2.1 192.0.2.2\nmark 2 from group g\nmark 3")}
	f := NewFilter(0, lists[0])
	e := gpukern.NewCPU(gpukern.Config{Tables: gpukern.Tables{ACL: lists[0].ACL()}})
	seen := map[uint32]int{}
	for i := range 500 {
		l := lists[i%2]
		if err := e.Load(gpukern.Tables{ACL: l.ACL()}); err != nil {
			t.Fatal(err)
		}
		f.Swap(l)
		b := batchOf(udp("192.0.2.1", "198.18.0.1", 1, 53), udp("192.0.2.9", "198.18.0.1", 1, 53))
		if err := e.Submit(b); err != nil {
			t.Fatal(err)
		}
		if done := make([]*packet.Batch, 1); e.Poll(done) != 1 || done[0] != b {
			t.Fatal("not done")
		}
		f.Apply(b)
		for k := range b.D {
			if b.D[k].Verdict != packet.Undecided {
				t.Fatal("lost")
			}
			seen[f.Mark(&b.D[k])]++
		}
	}
	if diff := cmp.Diff(map[uint32]int{1: 500, 2: 250, 3: 250}, seen); diff != "" {
		t.Error(diff)
	}
}

func TestPrefixListsHaveWhatPrefixesHave(t *testing.T) {
	var all []netip.Prefix
	for i := range 3000 {
		a := netip.AddrFrom4([4]byte{byte(i * 7), byte(i * 31 >> 3), byte(i), 0})
		all = append(all, netip.PrefixFrom(a, 8+i%20).Masked())
	}
	all = append(all, netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("2001:db8::1/128"), all[0])
	l, err := NewPrefixList("x", append([]netip.Prefix(nil), all...))
	if err != nil || l.Len() != 3003 || l.Size() == 0 {
		t.Fatal(l, err)
	}
	for i := range 4000 {
		a := netip.AddrFrom4([4]byte{byte(i), byte(i * 13), byte(i >> 4), 1})
		want := false
		for _, p := range all {
			want = want || p.Contains(a)
		}
		b := a.As4()
		if got := l.Contains(uint64(b[0])<<56|uint64(b[1])<<48|uint64(b[2])<<40|uint64(b[3])<<32, 0, true); got != want {
			t.Fatalf("%v: %v, want %v", a, got, want)
		}
	}
	if !l.Contains(0x20010db8<<32, 5, false) || l.Contains(0x20010db9<<32, 5, false) {
		t.Error("IPv6")
	}
}

func TestFilesNameOthers(t *testing.T) {
	files := map[string]string{
		"/etc/m/bad":       "# bad ones\n192.0.2.0/24 # x\n  2001:db8::/32\n192.0.2.300\n",
		"/etc/m/sub/a":     "deny to any port 1\ninclude \"../b\"\n",
		"/etc/m/b":         "oops\nlog tcp\n",
		"/etc/m/et.rules":  "alert ...",
		"/etc/m/loop":      "include \"loop\"",
		"/etc/m/sub/empty": "",
	}
	open := func(name string) (string, error) {
		text, ok := files[name]
		if !ok {
			return "", errors.New("no such file")
		}
		return text, nil
	}
	text := `list bad file "bad"
deny from list bad
include "sub/a"
inspect "et.rules"
alert tcp any any -> any 80 (msg:"#1"; \
  sid:1;)
drop udp any any <> any 53 (sid:2;)
allow tcp to any port 80 name "a -> b ("
include "none"
`
	f, wrong := ParseFile("/etc/m/r", text, open)
	var got []string
	for _, e := range wrong {
		got = append(got, fmt.Sprintf("%s:%d:%d %s (%s)", e.Name, e.Line, e.Column, e.Msg, e.Unsupported))
	}
	want := []string{
		"/etc/m/bad:4:1 \"192.0.2.300\" is not an address ()",
		"/etc/m/b:1:1 a rule begins with allow, deny, pass, drop, redirect, rate, mark or capture, not \"oops\" ()",
		"/etc/m/b:2:1 \"log\" is not supported (log)",
		"/etc/m/r:9:9 no such file ()",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if n := len(f.List.Rules()); n != 3 || f.List.Rules()[1].File != "/etc/m/sub/a" || f.Lists[0].Len() != 2 {
		t.Errorf("%d rules, %+v", n, f.List.Rules())
	}
	inspect := []Text{
		{"/etc/m/et.rules", "alert ...", 4},
		{"/etc/m/r", "\n\n\n\nalert tcp any any -> any 80 (msg:\"#1\"; \\\n  sid:1;)\ndrop udp any any <> any 53 (sid:2;)\n\n\n", 0},
	}
	if diff := cmp.Diff(inspect, f.Inspect); diff != "" {
		t.Error(diff)
	}
	if _, wrong := ParseFile("/etc/m/loop", files["/etc/m/loop"], open); len(wrong) != 1 || !strings.Contains(wrong[0].Msg, "more than 8 deep") {
		t.Errorf("%v", wrong)
	}
	if _, err := Parse("r", "alert tcp any any -> any 80 (sid:1;)"); !errors.Is(err, ErrSyntax) {
		t.Errorf("%v", err)
	}
}

// FuzzParseFile looks for panics and for errors without a place, in files that name each other, and sends a packet
// through the rules that are right, and through those of a swap.
func FuzzParseFile(f *testing.F) {
	f.Add("list a file \"x\"\ndeny from list a\ninclude \"y\"\ninspect \"z\"", "192.0.2.0/24\n2001:db8::/32 # x\nany")
	f.Add("group a 192.0.2.1 ::1\nrate 10kpps burst 9 per source capture from group a to any port 1-2,5", "mark 9 redirect e1 tcp\nalert tcp any any -> any any (sid:1;)")
	f.Add("allow rate 1Mbps mark 3\nlog\nlist b 192.0.2.0/24, 198.18.0.0/15\nmark 0x7 to list b name \"a\"", "include \"x\"")
	f.Fuzz(func(t *testing.T, text, named string) {
		file, wrong := ParseFile("f", text, func(name string) (string, error) {
			if len(name)%7 == 6 {
				return "", errors.New("missing")
			}
			return named, nil
		})
		for _, e := range wrong {
			if _ = e.Error(); e.Line < 1 || e.Column < 1 || e.Msg == "" || e.Source != "" && e.Column > len(e.Source)+1 {
				t.Fatalf("%+v", e)
			}
		}
		flt := NewFilter(0, &List{})
		for _, l := range []*List{file.List, {}, file.List} {
			flt.Swap(l)
			b := batchOf(udp("192.0.2.1", "198.18.0.1", 9, 5), udp("192.0.2.2", "192.0.2.1", 2, 1))
			b.Base = int64(len(text)) << 30
			through(t, flt, b)
			for i := range b.D {
				if r := int(b.D[i].Rule); r > len(l.rules) || r > 0 && !listHas(l.rules[r-1].Src, b, i) {
					t.Fatalf("packet %d has rule %d", i, r)
				}
			}
		}
	})
}

// listHas reports whether a list, if it is one, has the source address of packet i.
func listHas(l *PrefixList, b *packet.Batch, i int) bool {
	u := tupleOf(b, i)
	return l == nil || l.Contains(u.SrcHi, u.SrcLo, true)
}

// BenchmarkPrefixList measures a list of a million prefixes: how long it takes to read, and to look an address up.
func BenchmarkPrefixList(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	var text strings.Builder
	for range 1_000_000 {
		a := rng.Uint32()
		bits := []int{24, 24, 24, 24, 24, 24, 23, 22, 22, 20, 19, 16, 32, 32, 32, 32}[rng.IntN(16)]
		fmt.Fprintf(&text, "%v\n", netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(a >> 24), byte(a >> 16), byte(a >> 8), byte(a)}), bits).Masked())
	}
	var l *PrefixList
	b.Run("load", func(b *testing.B) {
		for b.Loop() {
			f, wrong := ParseFile("r", `list m file "m"`, func(string) (string, error) { return text.String(), nil })
			if len(wrong) > 0 {
				b.Fatal(wrong[0])
			}
			l = f.Lists[0]
		}
		b.ReportMetric(float64(l.Size()), "bytes")
	})
	addrs := make([]uint64, 1<<16)
	for i := range addrs {
		addrs[i] = uint64(rng.Uint32()) << 32
	}
	b.Run("look-up", func(b *testing.B) {
		n, hits := 0, 0
		for b.Loop() {
			if l.Contains(addrs[n&0xffff], 0, true) {
				hits++
			}
			n++
		}
	})
	b.Run("packet", func(b *testing.B) {
		f := NewFilter(0, &List{rules: []Rule{{Action: Drop, Src: l}, {}}, line: []int32{0, 1}, rest: []rest{{l, nil, must2("allow"), 1}, {}}, rates: make([]Rate, 2), device: make([]uint8, 2)})
		f.size()
		frames := make([][]byte, 256)
		for i := range frames {
			a := addrs[i] >> 32
			frames[i] = udp(netip.AddrFrom4([4]byte{byte(a >> 24), byte(a >> 16), byte(a >> 8), byte(a)}).String(), "198.18.0.1", 1, 2)
		}
		batch := batchOf(frames...)
		e := gpukern.NewCPU(gpukern.Config{Tables: gpukern.Tables{ACL: must2("allow")}})
		if err := e.Submit(batch); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			for i := range batch.D {
				batch.D[i].Rule, batch.D[i].Verdict = 1, 0
			}
			f.Apply(batch)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/256, "ns/packet")
	})
}

func must2(text string) *acl.List {
	l, err := Parse("r", text)
	if err != nil {
		panic(err)
	}
	return l.ACL()
}
