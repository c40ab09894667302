package inspect

import (
	"testing"

	"github.com/millrace/millrace/filter/signature"
)

// TestFlowsForgetTheListsOfOldRules swaps rules without a content under a flow that knows which of them have its header.
func TestFlowsForgetTheListsOfOldRules(t *testing.T) {
	compile := func(text string, before *Rules) *Rules {
		r, err := CompileNext(signature.Parse("test", text, nil).Rules, before)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	none := compile(`alert udp any any -> any 53 (dsize:3; sid:1;)`, nil)
	some := compile(`alert udp any any -> any 9 (dsize:3; sid:2;)`, none)
	l := newLab(t, `content:"nothing";`)
	l.e = New(none, Config{}, func(a *Alert) { l.alerts = append(l.alerts, *a) })
	l.udp(9, "abc")
	l.udp(9, "abc")
	l.want("rules of another port", "")
	l.e.Swap(some, Config{})
	l.udp(9, "abc")
	l.want("after the swap", "2")
	l.e.Swap(compile(`alert udp any any -> any 53 (dsize:3; sid:3;)`, some), Config{})
	l.udp(9, "abc")
	l.want("after another swap", "2")
}

// TestTheQuietestFlowMakesRoom has a flow that goes on and one that does not, which is younger.
func TestTheQuietestFlowMakesRoom(t *testing.T) {
	l := newLab(t, `content:"hit"; flowbits:isset,x;
content:"set"; flowbits:set,x; flowbits:noalert;`)
	l.e.cfg.MaxFlows = 2
	l.udp(1, "set")
	l.udp(2, "set")
	l.udp(1, "more")
	l.udp(3, "x") // in place of the flow to port 2
	l.udp(1, "hit")
	l.want("the flow that went on", "1")
	l.now += 20e9
	l.udp(1, "more")
	l.now += 900e6
	l.udp(1, "more")
	l.now += 29_500e6 // it got its place more than its time ago, and had a packet since
	l.e.Expire(l.now, 10)
	l.udp(1, "hit")
	l.want("a flow that is quiet for less than its time", "1 1")
	l.now += 31e9
	if l.e.Expire(l.now, 10); l.e.flows.n != 0 {
		t.Errorf("%d flows are left", l.e.flows.n)
	}
}
