package inspection

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/filter/inspect"
	"github.com/millrace/millrace/filter/signature"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/wire"
)

// openedForRequests returns an inspector whose only policy is for a listener, with two workers.
func openedForRequests(t testing.TB, rules string, opt Options, edit func(*config.Config)) (*Inspector, string) {
	t.Helper()
	i, dir := openedAs(t, rules, "drop from 192.0.2.9\n", opt, func(c *config.Config) {
		p := &c.Inspection.Policies[0]
		p.Listeners, p.Access = []string{"web"}, nil
		if edit != nil {
			edit(c)
		}
	})
	i.SetWorkers(2)
	return i, dir
}

// request hands over a request of a client, and returns the result.
func request(t testing.TB, r *Requests, now clock.Time, proxied bool, head string) inspect.Result {
	t.Helper()
	e, _ := r.Engine(1, true)
	if e == nil {
		t.Fatal("no engine")
	}
	c := e.Connect(int64(now), inspect.Client{
		From: netip.MustParseAddrPort("192.0.2.7:40000"), To: netip.MustParseAddrPort("198.18.1.1:443"), Proto: wire.ProtoTCP, Listener: "web", Proxied: proxied,
	})
	c.ServerName = "site.test"
	x := begun(c)
	res := x.Head(int64(now), signature.ToServer, &inspect.Head{Raw: []byte(head), Ends: true})
	x.Close(int64(now))
	c.Close()
	return res
}

const requestRule = `drop http any any -> any any (msg:"evil"; http.uri; content:"/evil"; sid:8; rev:2;)` + "\n"

// An alert of a request has the request, leaves by the file of all alerts, counts for its rule, and is a verdict on its client.
func TestAlertsOfRequests(t *testing.T) {
	var verdicts []Verdict
	i, dir := openedForRequests(t, requestRule+`alert tcp any any -> any any (content:"abc"; sid:9;)`+"\n", Options{OnVerdict: func(v *Verdict) { verdicts = append(verdicts, *v) }}, nil)
	for n, proxied := range []bool{false, true} {
		r := request(t, i.Requests(n), clock.Time(5*time.Second), proxied, "GET /evil HTTP/1.1\r\nHost: a.test\r\n\r\n")
		if _, mode := i.Requests(n).Engine(1, false); r.Outcome != inspect.Drop || !mode.Ends(r) {
			t.Errorf("%+v", r)
		}
		if len(verdicts) != 1 { // the second comes by a proxy, whose address is none of the client's
			t.Fatalf("%d verdicts", len(verdicts))
		}
	}
	if v := verdicts[0]; v.Action != ActionDrop || v.Client != netip.MustParseAddr("192.0.2.7") || v.Rule.SID != 8 || v.Inner || v.Time != clock.Time(5*time.Second) {
		t.Errorf("%+v", v)
	}
	s := i.Status(9)
	if p := s.Policies[0]; p.Rules != 2 || p.Requests != 1 || p.Inspected != 2 || p.NotOfRequests["content of packets"] != 1 || p.Packets != 0 {
		t.Errorf("%+v", p)
	}
	if len(s.Rules) != 1 || s.Rules[0].Matches != 2 || s.Rules[0].Drops != 2 {
		t.Errorf("%+v", s.Rules)
	}
	list := alertsOf(t, i, dir)
	if len(list) != 2 || list[1].Loop != 1 || list[0].Time != "1970-01-01T00:00:06.000000Z" || list[0].Request == nil {
		t.Fatalf("%+v", list)
	}
	if got, want := *list[0].Request, (AlertRequest{"web", "site.test", "GET", "a.test", "/evil"}); got != want || list[0].Action != "drop" || list[0].DstPort != 443 {
		t.Errorf("%+v %+v", list[0], got)
	}
}

// A reload is in force with the next request, and a policy that is for no listener any more has no engine.
func TestReloadsOfRules(t *testing.T) {
	i, dir := openedForRequests(t, requestRule, Options{}, nil)
	defer i.Close()
	r := i.Requests(0)
	evil := "GET /evil HTTP/1.1\r\nHost: a\r\n\r\n"
	if request(t, r, 1, false, evil).Outcome != inspect.Drop {
		t.Error("it does not match")
	}
	write(t, filepath.Join(dir, "a.rules"), strings.Replace(requestRule, "/evil", "/other", 1))
	if err := i.Reload(i.cfg); err != nil {
		t.Fatal(err)
	}
	if request(t, r, 2, false, evil).Outcome != inspect.Pass || request(t, r, 3, false, strings.Replace(evil, "evil", "other", 1)).Outcome != inspect.Drop {
		t.Error("the rules of before are in force")
	}
	cfg := *i.cfg
	cfg.Inspection.Policies = slices.Clone(cfg.Inspection.Policies)
	cfg.Inspection.Policies[0].Listeners = nil
	if err := i.Reload(&cfg); err != nil {
		t.Fatal(err)
	}
	if e, _ := r.Engine(1, true); e != nil || r.engines[1] != nil {
		t.Error("a policy without listeners has an engine of requests")
	}
	if e, _ := r.Engine(77, true); e != nil {
		t.Error("a policy that was never there has an engine")
	}
}

// What a policy leads to is its mode and what it does at bounds, which workers share.
func TestModesOfRequests(t *testing.T) {
	for _, c := range []struct {
		mode     config.InspectionMode
		overload config.Overload
		want     inspect.Mode
	}{
		{config.InspectionDetect, config.OverloadDrop, inspect.Detect},
		{config.InspectionPrevent, config.OverloadDrop, inspect.Prevent},
		{config.InspectionPrevent, config.OverloadPass, inspect.PreventOpen},
	} {
		i, _ := openedForRequests(t, requestRule, Options{}, func(cfg *config.Config) {
			cfg.Inspection.Policies[0].Mode, cfg.Inspection.Overload, cfg.Inspection.Flows = c.mode, c.overload, 64
		})
		e, mode := i.Requests(0).Engine(1, true)
		if mode != c.want {
			t.Errorf("%s, %s: mode %d", c.mode, c.overload, mode)
		}
		n := 0
		for e.Connect(1, inspect.Client{From: netip.MustParseAddrPort("192.0.2.7:1"), To: netip.MustParseAddrPort("192.0.2.8:1")}) != nil {
			n++
		}
		if n != 32 {
			t.Errorf("%d connections of one of two workers, of 64", n)
		}
		if err := i.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Many reloads beside a connection that goes on keep one set of rules.
func TestReloadsBesideRequestsKeepNoRules(t *testing.T) {
	var rules strings.Builder
	for n := range 3000 {
		fmt.Fprintf(&rules, "alert http any any -> any any (http.uri; content:\"a rare text %d\"; sid:%d;)\n", n, n+1)
	}
	i, dir := openedForRequests(t, rules.String(), Options{}, nil)
	defer i.Close()
	r := i.Requests(0)
	e, _ := r.Engine(1, true)
	c := e.Connect(1, inspect.Client{From: netip.MustParseAddrPort("192.0.2.7:1"), To: netip.MustParseAddrPort("192.0.2.8:1"), Proto: wire.ProtoTCP})
	x := begun(c)
	x.Head(1, signature.ToServer, &inspect.Head{Raw: []byte("POST /a HTTP/1.1\r\nHost: a\r\n\r\n")})
	one := 0
	for n := range 20 {
		if err := os.WriteFile(filepath.Join(dir, "a.rules"), fmt.Appendf(nil, "%salert http any any -> any any (http.uri; content:\"this time %d\"; sid:9001;)\n", rules.String(), n), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := i.Reload(i.cfg); err != nil {
			t.Fatal(err)
		}
		r.Engine(1, true)
		x.Body(2, signature.ToServer, []byte("more"))
		runtime.GC()
		runtime.GC()
		if n == 1 {
			one = inUse()
		}
	}
	if last := inUse(); last > one+one/4 {
		t.Errorf("%d bytes after 2 reloads, %d after 20", one, last)
	}
	x.Close(3)
	c.Close()
}

func begun(c *inspect.Conn) *inspect.Exchange {
	x := &inspect.Exchange{}
	c.Begin(x)
	return x
}
