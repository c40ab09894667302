package filter

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

func TestAListOfPortsMakesARuleForEachPair(t *testing.T) {
	l, err := Parse("r", `drop udp from any port 1,2-3 to any port 53,67,69 name "odd # ports" # why`)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range l.Rules() {
		lo, hi, _ := r.Match.SrcPorts.Range()
		to, _, _ := r.Match.DstPorts.Range()
		got = append(got, fmt.Sprintf("%d-%d>%d %s %d", lo, hi, to, r.Name, r.Line))
	}
	want := []string{
		"1-1>53 odd # ports 1", "1-1>67 odd # ports 1", "1-1>69 odd # ports 1",
		"2-3>53 odd # ports 1", "2-3>67 odd # ports 1", "2-3>69 odd # ports 1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestMisspeltWordsGetASuggestion(t *testing.T) {
	for text, want := range map[string]string{
		"dorp tcp":                      "1: a rule begins with allow, deny, pass, drop, redirect, rate, mark or capture, not \"dorp\"; did you mean drop?",
		"drop tpc to any":               "6: \"tpc\" is not a protocol; did you mean tcp?",
		"drop fron any":                 "6: \"fron\" is not a protocol; did you mean from?",
		"drop tcp to ayn":               "13: \"ayn\" is not an address; did you mean any?",
		"drop tcp to any prot 80":       "17: \"prot\" is not known; did you mean port?",
		"drop tcp port 80":              "10: \"port\" is one word too many: ports stand behind a place, as in \"to any port 80\"",
		"drop tcp to any port 80,8o":    "25: \"8o\" is not a port or a range of ports, 0 to 65535",
		"drop tcp to any port 80,":      "25: \"\" is not a port or a range of ports, 0 to 65535",
		"drop xy":                       "6: \"xy\" is not a protocol; say tcp, udp, icmp, icmpv6, sctp, gre, esp, ah, ipip or proto NUMBER",
		"drop tcp name login":           "15: a name stands in double quotes",
		"drop tcp name \"login":         "15: a name stands in double quotes",
		"drop tcp name \"a\" to any":    "19: \"to\" is one word too many: from, to and name come once and in this order",
		"drop xylophonexylophone":       "6: \"xylophonexylophone\" is not a protocol; say tcp, udp, icmp, icmpv6, sctp, gre, esp, ah, ipip or proto NUMBER",
		"drop tcp to any port 1" + many: "the ports of one line make",
	} {
		_, err := Parse("f", text)
		var s *SyntaxError
		if !errors.As(err, &s) {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := fmt.Sprintf("%d: %s", s.Column, s.Msg); got != want && !(strings.HasPrefix(want, "the") && strings.Contains(got, want)) {
			t.Errorf("%.40s:\ngot  %s\nwant %s", text, got, want)
		}
	}
}

var many = strings.Repeat(",1", maxSpread)

func TestTextsAndListsHaveBounds(t *testing.T) {
	if _, err := Parse("f", strings.Repeat("#", MaxText+1)); !errors.Is(err, ErrSyntax) {
		t.Errorf("too long: %v", err)
	}
	if l, err := Parse("f", "drop\n"+strings.Repeat("#", MaxText-5)); err != nil || len(l.Rules()) != 1 {
		t.Errorf("as long as it may be: %v", err)
	}
	if l, err := Parse("f", "drop tcp to any port 1"+many[2:]); err != nil || len(l.Rules()) != maxSpread {
		t.Errorf("as many ports as a line may have: %v", err)
	}
	line := "drop tcp to any port 1" + strings.Repeat(",2", 99) + "\n"
	_, err := Parse("f", strings.Repeat(line, 656))
	var s *SyntaxError
	if !errors.As(err, &s) || s.Line != 656 || !strings.Contains(s.Msg, "at most 65534 rules") {
		t.Errorf("too many rules: %v", err)
	}
	_, err = Parse("f", strings.Repeat("oops\n", 1000))
	if n := strings.Count(err.Error(), "begins with"); n != maxMistakes {
		t.Errorf("%d mistakes shown", n)
	}
}

func TestChecksDropBeforeRules(t *testing.T) {
	const ip, l4 = packet.FlagIPv4 | packet.FlagIPChecksumOK, packet.FlagL4ChecksumOK
	for _, tc := range []struct {
		name string
		d    packet.Desc
		want packet.Verdict
	}{
		{"a right packet", packet.Desc{Flags: ip | l4, Payload: 54, Proto: wire.ProtoTCP}, packet.Undecided},
		{"not IP", packet.Desc{}, packet.Undecided},
		{"UDP without checksum", packet.Desc{Flags: ip | packet.FlagL4NoChecksum, Payload: 42, Proto: wire.ProtoUDP}, packet.Undecided},
		{"a protocol without checksum", packet.Desc{Flags: ip, L4: 34, Proto: wire.ProtoESP}, packet.Undecided},
		{"SCTP", packet.Desc{Flags: ip, L4: 34, Payload: 46, Proto: wire.ProtoSCTP}, packet.Undecided},
		{"a fragment", packet.Desc{Flags: ip | packet.FlagFragment, Payload: 42, Proto: wire.ProtoUDP}, packet.Undecided},
		{"malformed", packet.Desc{Flags: ip | l4 | packet.FlagMalformed}, packet.DropMalformed},
		{"malformed and truncated", packet.Desc{Flags: packet.FlagTruncated | packet.FlagMalformed}, packet.DropMalformed},
		{"truncated", packet.Desc{Flags: ip | packet.FlagTruncated, Payload: 54, Proto: wire.ProtoTCP}, packet.DropTruncated},
		{"IPv4 checksum", packet.Desc{Flags: packet.FlagIPv4 | l4, Payload: 54, Proto: wire.ProtoTCP}, packet.DropIPChecksum},
		{"TCP checksum", packet.Desc{Flags: ip, Payload: 54, Proto: wire.ProtoTCP}, packet.DropL4Checksum},
		{"ICMPv6 checksum", packet.Desc{Flags: packet.FlagIPv6, Payload: 62, Proto: wire.ProtoICMPv6}, packet.DropL4Checksum},
		{"dropped before", packet.Desc{Flags: packet.FlagMalformed, Verdict: packet.DropImpaired}, packet.DropImpaired},
	} {
		b := &packet.Batch{D: []packet.Desc{tc.d}}
		f := Filter{Checks: ChecksAll}
		f.Apply(b)
		if got := b.D[0].Verdict; got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
		b.D[0].Verdict = packet.Undecided
		f.Checks = 0
		f.Apply(b)
		if got := b.D[0].Verdict; got != packet.Undecided {
			t.Errorf("%s: %v without checks", tc.name, got)
		}
	}
}

func TestRulesCountThePacketsThatTheyDecide(t *testing.T) {
	l, err := Parse("r", "pass to any port 53\ndrop to any\n")
	if err != nil {
		t.Fatal(err)
	}
	f := NewFilter(CheckMalformed, l)
	b := &packet.Batch{D: []packet.Desc{
		{Rule: 1},
		{Rule: 2, Flags: packet.FlagMore},
		{},
		{Rule: 2},
		{Rule: 2, Flags: packet.FlagMalformed},
		{Flags: packet.FlagMore},
	}}
	f.Apply(b)
	var got []packet.Verdict
	for _, d := range b.D {
		got = append(got, d.Verdict)
	}
	want := []packet.Verdict{
		packet.Undecided, packet.DropRule, packet.DropRule, packet.DropRule, packet.DropMalformed, packet.Undecided,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("verdicts:", diff)
	}
	if diff := cmp.Diff([]uint64{1, 2}, f.Hits); diff != "" {
		t.Error("hits:", diff)
	}
	if n := testing.AllocsPerRun(10, func() { f.Apply(b) }); n != 0 {
		t.Errorf("Apply allocates %v times", n)
	}
}

func TestAFilterWithoutRulesOnlyChecks(t *testing.T) {
	b := &packet.Batch{D: []packet.Desc{{Rule: 7}, {Flags: packet.FlagTruncated}}}
	NewFilter(ChecksAll, nil).Apply(b)
	if b.D[0].Verdict != packet.Undecided || b.D[1].Verdict != packet.DropTruncated {
		t.Errorf("%v, %v", b.D[0].Verdict, b.D[1].Verdict)
	}
}

// TestChecksReadTheEnginesFlags runs a packet with a wrong checksum through the engine.
func TestChecksReadTheEnginesFlags(t *testing.T) {
	p := udp("192.0.2.1", "198.18.0.1", 1, 2)
	p[41] = 1 // a UDP checksum, and a wrong one
	b := batchOf(p)
	if err := gpukern.NewCPU(gpukern.Config{}).Submit(b); err != nil {
		t.Fatal(err)
	}
	f := Filter{Checks: CheckL4Checksum}
	if f.Apply(b); b.D[0].Verdict != packet.DropL4Checksum {
		t.Errorf("UDP checksum: %v", b.D[0].Verdict)
	}
}

func TestAPacketThatIsNotAllThereHasNoWrongChecksum(t *testing.T) {
	b := &packet.Batch{D: []packet.Desc{{
		Flags: packet.FlagIPv6 | packet.FlagTruncated, L4: 54, Payload: 74, Proto: wire.ProtoTCP,
	}}}
	(&Filter{Checks: CheckL4Checksum}).Apply(b)
	if b.D[0].Verdict != packet.Undecided {
		t.Errorf("%v", b.D[0].Verdict)
	}
}

func TestCheckHeadersLooksAwayWhereOnlyPayloadIsMissing(t *testing.T) {
	for name, c := range map[string]struct {
		d    packet.Desc
		want packet.Verdict
	}{
		"payload missing":    {packet.Desc{Flags: packet.FlagIPv4 | packet.FlagTruncated, L4: 34, Payload: 54}, packet.Undecided},
		"header missing":     {packet.Desc{Flags: packet.FlagIPv4 | packet.FlagTruncated}, packet.DropTruncated},
		"cut later fragment": {packet.Desc{Flags: packet.FlagIPv4 | packet.FlagTruncated | packet.FlagFragment | packet.FlagFragmentRest}, packet.Undecided},
		"whole":              {packet.Desc{Flags: packet.FlagIPv4}, packet.Undecided},
	} {
		if v := CheckHeaders.verdict(&c.d); v != c.want {
			t.Errorf("%s: %v, want %v", name, v, c.want)
		}
	}
}
