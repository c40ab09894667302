package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/internal/testkit/testpcaps"
)

// statefulRules have what goes beyond a packet: thresholds and detection filters by all that they count, bits, counters, passes.
const statefulRules = inspectionRules + `alert tcp any any -> any any (msg:"few"; flags:A+; threshold:type limit,track by_src,count 2,seconds 60; sid:20;)
alert tcp any any -> any any (msg:"each tenth"; flags:A+; threshold:type threshold,track by_dst,count 10,seconds 600; sid:21;)
alert ip any any -> any any (msg:"once"; threshold:type both,track by_both,count 3,seconds 60; sid:22;)
alert udp any any -> any any (msg:"many"; detection_filter:track by_src,count 2,seconds 60; sid:23;)
alert tcp any any -> any any (msg:"first"; flags:S; flowbits:set,begun; noalert; sid:24;)
alert tcp any any -> any any (msg:"then"; flags:A+; flowbits:isset,begun; threshold:type limit,track by_rule,count 7,seconds 3600; sid:25;)
pass icmp any any -> any any (msg:"no more"; itype:0; sid:26;)
`

// inspectedBy returns the lines of filter inspect with so many engines.
func inspectedBy(t *testing.T, rules *inspect.Rules, cores int, separate bool, captures []string) ([]string, *Inspection) {
	t.Helper()
	var out bytes.Buffer
	s := &Inspection{Rules: rules, Cores: cores, Separate: separate, Config: inspect.Config{Midstream: true}}
	_ = s.Run(context.Background(), &out, captures) // some cannot be read to their end
	return strings.SplitAfter(out.String(), "\n"), s
}

// atEndOfFlow reports whether a line is of the end of a flow: where several end with the captures, one engine has them in the order of
// their last packets, and several have not.
func atEndOfFlow(t *testing.T, line string) bool {
	t.Helper()
	if line == "" {
		return false
	}
	var e AlertEvent
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		t.Fatal(err)
	}
	return e.Packet == 0
}

// TestSeveralEnginesFindWhatOneDoes compares every line, of all captures as one sequence and of each for itself.
func TestSeveralEnginesFindWhatOneDoes(t *testing.T) {
	rules := compiled(t, statefulRules)
	for _, separate := range []bool{false, true} {
		files := testpcaps.Files(t)
		if !separate { // some tunnels have the same flows: the outer addresses decide over the engine
			files = slices.DeleteFunc(files, func(path string) bool {
				return strings.Contains("geneve.pcap gre.pcap gretap.pcap ip6tnl.pcap ipip.pcap vxlan.pcap", filepath.Base(path))
			})
		}
		want, one := inspectedBy(t, rules, 1, separate, files)
		for _, cores := range []int{2, 5} {
			got, all := inspectedBy(t, rules, cores, separate, files)
			if all.Alerts != one.Alerts || all.Stats.Packets != one.Stats.Packets || all.Stats.Bytes != one.Stats.Bytes || all.Stats.Flows != one.Stats.Flows || all.Stats.Suppressed != one.Stats.Suppressed {
				t.Errorf("%d engines: %d alerts, %+v; one: %d, %+v", cores, all.Alerts, all.Stats, one.Alerts, one.Stats)
			}
			ended := func(line string) bool { return atEndOfFlow(t, line) }
			if !slices.Equal(slices.DeleteFunc(slices.Clone(got), ended), slices.DeleteFunc(slices.Clone(want), ended)) {
				t.Errorf("%d engines have other lines, or in another order", cores)
			}
			a, b := slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
			if !slices.Equal(a, b) {
				t.Errorf("%d engines have other lines", cores)
			}
		}
		if one.Alerts < 500 || one.Stats.Suppressed < 100 {
			t.Errorf("%d alerts and %d kept back are few", one.Alerts, one.Stats.Suppressed)
		}
	}
}

// TestRulesThatNeedOneEngine are those whose state belongs to no pair of hosts and is needed at once.
func TestRulesThatNeedOneEngine(t *testing.T) {
	text := statefulRules + `alert dns any any -> any any (msg:"new name"; dns.query; dataset:set,names,type string; sid:30;)
alert dns any any -> any any (msg:"known name"; dns.query; dataset:isset,names,type string; sid:31;)
alert udp any any -> any any (msg:"many"; detection_filter:track by_src,count 2,seconds 60; flowbits:set,busy; sid:32;)
pass udp any any -> any any (msg:"too many"; detection_filter:track by_src,count 9,seconds 60; sid:33;)
alert ip any any -> any any (msg:"host"; xbits:set,seen,track ip_src,expire 60; sid:34;)
`
	f := signature.Parse("test", text, nil)
	if len(f.Errors)+len(f.Skipped) > 0 {
		t.Fatal(f.Errors, f.Skipped)
	}
	r, err := inspect.Compile(f.Rules)
	if err != nil {
		t.Fatal(err)
	}
	var sids []uint32
	for _, q := range r.NeedOneEngine() {
		sids = append(sids, q.SID)
	}
	slices.Sort(sids)
	if !slices.Equal(sids, []uint32{30, 32, 33}) {
		t.Errorf("rules %v, want 30, 32 and 33", sids)
	}
	if list := compiled(t, statefulRules).NeedOneEngine(); len(list) > 0 {
		t.Errorf("%d:%d needs one engine", list[0].GID, list[0].SID)
	}
}
