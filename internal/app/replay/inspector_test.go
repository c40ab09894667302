package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/internal/testkit/testpcaps"
)

const inspectionRules = `alert http any any -> any any (msg:"a request"; http.method; content:"GET"; sid:1; rev:3;)
alert http any any -> any any (msg:"an answer"; http.stat_code; content:"200"; sid:2;)
alert dns any any -> any any (msg:"a query"; dns.query; content:"e"; sid:3;)
alert tls any any -> any any (msg:"a name"; tls.sni; content:"example"; sid:4;)
alert ip any any -> any any (msg:"a fragment"; fragbits:M; sid:5;)
alert tcp any any -> any any (msg:"an end"; flags:F+; sid:6;)
alert ip any any -> any any (msg:"joined"; dsize:>1500; sid:7;)
alert icmp any any -> any any (msg:"echo"; itype:8; sid:8;)
alert http any any -> any any (msg:"to the end"; flow:to_client; file.data; content:!"nowhere"; sid:9;)
alert tcp any any -> any any (msg:"syn"; flags:S; sid:10;)
`

func compiled(t *testing.T, text string) *inspect.Rules {
	t.Helper()
	f := signature.Parse("test", text, nil)
	if len(f.Errors)+len(f.Skipped) > 0 {
		t.Fatal(f.Errors, f.Skipped)
	}
	r, err := inspect.Compile(f.Rules)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ends names a flow, whatever its direction.
func endsOf(proto string, a, b netip.AddrPort) string {
	if b.Compare(a) < 0 {
		a, b = b, a
	}
	return fmt.Sprint(proto, " ", a, " ", b)
}

// TestFlowsHaveTheAlertsOfFilterInspect compares the alerts of flows with the lines of filter inspect on the same captures, by
// rule and ends. Alerts in tunnels are of the outer flow here and of the inner one there: of those the sums agree.
func TestFlowsHaveTheAlertsOfFilterInspect(t *testing.T) {
	rules := compiled(t, inspectionRules)
	tested := map[uint32]bool{}
	for _, path := range testpcaps.Files(t) {
		var lines bytes.Buffer
		one := Inspection{Rules: rules}
		if one.Run(context.Background(), &lines, []string{path}) != nil {
			continue // it cannot be read to its end
		}
		want, inTunnels, sum := map[string]uint64{}, uint64(0), uint64(0)
		for dec := json.NewDecoder(&lines); dec.More(); {
			var a AlertEvent
			if err := dec.Decode(&a); err != nil {
				t.Fatal(err)
			}
			sum++
			if a.Tunnels > 0 {
				inTunnels++
				continue
			}
			sid := uint32(0)
			if a.Alert != nil {
				sid = a.Alert.SID
			}
			want[fmt.Sprint(endsOf(a.Proto, netip.AddrPortFrom(a.Src, a.SrcPort), netip.AddrPortFrom(a.Dst, a.DstPort)), " sid ", sid)]++
		}
		rep, err := Run(context.Background(), Config{Files: []string{path}, Inspect: rules, Conversations: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		got, of := map[string]uint64{}, uint64(0)
		for i := range rep.Conversations.List {
			f := &rep.Conversations.List[i]
			name := endsOf(EVETransport(f.Protocol), f.A, f.B)
			for _, h := range f.Alerts {
				got[fmt.Sprint(name, " sid ", h.SID)] += h.Alerts
				of += h.Alerts
				tested[h.SID] = true
			}
			got[name+" sid 0"] += f.Anomalies
			of += f.Anomalies + f.MoreAlerts
		}
		if rep.Inspected.Alerts+rep.Inspected.Anomalies != sum || of+rep.Inspected.NoFlow != sum {
			t.Errorf("%s: %d alerts in flows and %d in none, want %d: %+v", path, of, rep.Inspected.NoFlow, sum, rep.Inspected)
		}
		if inTunnels > 0 {
			continue
		}
		missed := uint64(0)
		for k, n := range want {
			if got[k] > n {
				t.Errorf("%s: %s has %d alerts, want %d", path, k, got[k], n)
			}
			missed += n - got[k]
		}
		if missed != rep.Inspected.NoFlow {
			t.Errorf("%s: %d alerts are not where filter inspect has them, %d are of no flow", path, missed, rep.Inspected.NoFlow)
		}
	}
	for sid := uint32(1); sid <= 10; sid++ {
		if !tested[sid] {
			t.Errorf("no flow of any capture has an alert of sid %d", sid)
		}
	}
}

// TestAccessRulesHidePackets has access rules in front of inspection rules, as on a gateway.
func TestAccessRulesHidePackets(t *testing.T) {
	path := testpcaps.File(t, "http.pcap")
	count := func(access string) *Inspected {
		list, err := filter.Parse("access", access)
		if err != nil {
			t.Fatal(err)
		}
		rep, err := Run(context.Background(), Config{Files: []string{path}, Rules: list, Inspect: compiled(t, inspectionRules)})
		if err != nil {
			t.Fatal(err)
		}
		return rep.Inspected
	}
	if all := count("allow tcp"); all.Packets == 0 || all.Alerts == 0 || len(all.Hits) < 3 || all.Hits[0].Rev != 3 || all.Hits[0].Msg != "a request" {
		t.Errorf("%+v", all)
	}
	for _, access := range []string{"deny tcp", "rate 1pps burst 1 tcp"} {
		if none := count(access); none.Alerts > 1 { // one packet is within the rate
			t.Errorf("%s: %+v", access, none)
		}
	}
	if _, err := Run(context.Background(), Config{Files: []string{path}, Laps: 2, Inspect: compiled(t, inspectionRules)}); err == nil {
		t.Error("packets are inspected in two laps")
	}
}

func TestAlertsOfAFlowAreBounded(t *testing.T) {
	var text strings.Builder
	for i := range maxFlowRules + 4 {
		fmt.Fprintf(&text, "alert tcp any any -> any any (flags:S; sid:%d;)\n", i+1)
	}
	rep, err := Run(context.Background(), Config{Files: []string{testpcaps.File(t, "http.pcap")}, Inspect: compiled(t, text.String()), Conversations: 1})
	if err != nil {
		t.Fatal(err)
	}
	if f := rep.Conversations.List[0]; len(f.Alerts) != maxFlowRules || f.MoreAlerts == 0 || f.Alerts[0].Alerts == 0 {
		t.Errorf("%+v", f)
	}
	var out bytes.Buffer
	if err := WriteFlows(&out, rep.Conversations); err != nil || !strings.Contains(out.String(), `"alerts":[{"action":"alert","gid":1,"signature_id":1,`) || !strings.Contains(out.String(), `"alerted":true`) {
		t.Errorf("%v %s", err, out.String())
	}
}
