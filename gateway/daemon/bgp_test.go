package daemon

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/bgp"
	"github.com/millrace/millrace/gateway/config"
	l4control "github.com/millrace/millrace/l4/control"
	"github.com/millrace/millrace/l4/datapath"
)

const announcedFile = `devices: [{name: eth0}]
bgp: {as: 64512, router_id: 192.0.2.1, med: 5, communities: no-export, graceful_restart: 60s, drain: 3s, peers: [
  {address: 192.0.2.2, as: 65000, next_hop: "2001:db8::1", hold_time: 6s, connect_retry: 2s, max_prefixes: 7, local_address: 192.0.2.9},
  {address: "2001:db8::2", as: 64512, port: 1179, hops: 3, ttl_security: true}]}
services:
  - {name: a, source: client, address: [198.18.1.1:80, "[2001:db8:1::1]:80"], announce: {}, backends: [{address: 198.18.2.2:80}, {address: "[2001:db8:2::2]:80"}]}
  - {name: b, source: client, address: 198.18.1.1:443, announce: {med: 9}, backends: [{address: 198.18.2.2:443}]}
  - {name: c, source: client, address: 198.18.1.3:443, backends: [{address: 198.18.2.2:443}]}
`

func announcedConfig(t *testing.T) *config.Config {
	t.Helper()
	c, err := config.Parse("f", []byte(announcedFile))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEveryKeyOfAPeerReachesTheSpeaker(t *testing.T) {
	want := bgp.Config{
		AS: 64512, RouterID: netip.MustParseAddr("192.0.2.1"), GracefulRestart: time.Minute, Drain: 3 * time.Second, Peers: []bgp.Peer{
			{
				Address: netip.MustParseAddr("192.0.2.2"), Port: 179, AS: 65000, HoldTime: 6 * time.Second, ConnectRetry: 2 * time.Second, Hops: 1, MaxPrefixes: 7,
				LocalAddress: netip.MustParseAddr("192.0.2.9"), Families: []bgp.Family{bgp.IPv4, bgp.IPv6}, NextHop6: netip.MustParseAddr("2001:db8::1"), Password: "word",
			},
			{
				Address: netip.MustParseAddr("2001:db8::2"), Port: 1179, AS: 64512, HoldTime: 9 * time.Second, ConnectRetry: 5 * time.Second, Hops: 3, TTLSecurity: true,
				MaxPrefixes: 10000, Families: []bgp.Family{bgp.IPv6},
			},
		},
	}
	c := announcedConfig(t)
	c.BGP.Peers[0].Password = "word"
	if got := speakerConfig(c); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	c.BGP = nil
	if got := speakerConfig(c); len(got.Peers) != 0 {
		t.Errorf("without bgp there are peers: %+v", got)
	}
}

// TestRoutesFollowServices has the availability of services, and the routes that follow, step by step.
func TestRoutesFollowServices(t *testing.T) {
	c, now := announcedConfig(t), time.Unix(1000, 0)
	var a announcer
	a.open()
	defer a.stop()
	four, six := netip.MustParsePrefix("198.18.1.1/32"), netip.MustParsePrefix("2001:db8:1::1/128")
	const un, unsettled, draining, available = l4control.Unavailable, l4control.Unsettled, l4control.Draining, l4control.Available
	type want struct{ announced, shutdown bool }
	for i, step := range []struct {
		after     time.Duration
		a4, a6, b l4control.Availability
		four, six want
		med       uint32
	}{
		{0, unsettled, un, unsettled, want{}, want{}, 0}, // the start
		{0, draining, un, unsettled, want{}, want{}, 0},  // and so no router is to leave it
		{time.Second, available, un, unsettled, want{true, false}, want{}, 5},
		{time.Second, un, un, available, want{true, false}, want{}, 9}, // one of two services is enough
		{time.Second, un, available, draining, want{true, true}, want{true, false}, 9},
		{time.Second, un, unsettled, unsettled, want{true, true}, want{true, false}, 9},            // both stay as they are
		{9 * time.Second, un, unsettled, unsettled, want{true, true}, want{true, false}, 9},        //
		{999 * time.Millisecond, un, unsettled, unsettled, want{true, true}, want{true, false}, 9}, //
		{time.Millisecond, un, unsettled, unsettled, want{}, want{}, 0},                            // for 10 s
		{time.Second, un, unsettled, unsettled, want{}, want{}, 0},
		{time.Second, available, unsettled, available, want{true, false}, want{}, 5},
		{time.Second, un, un, un, want{}, want{}, 0},
	} {
		now = now.Add(step.after)
		list := []l4control.ServiceAvailability{{Service: &c.Services[0]}, {Service: &c.Services[1]}}
		list[0].Families[datapath.Family4], list[0].Families[datapath.Family6], list[1].Families[datapath.Family4] = step.a4, step.a6, step.b
		got := a.follow(servicesAnnounced(list), c.BGP.Attributes, now)
		for p, w := range map[netip.Prefix]want{four: step.four, six: step.six} {
			if r, ok := got[p]; ok != w.announced || r.Shutdown != w.shutdown {
				t.Errorf("step %d: %v is announced %v, shutdown %v; want %+v", i, p, ok, r.Shutdown, w)
			}
		}
		if r := got[four]; r.MED != step.med || step.med != 0 && (!r.HasMED || len(r.Communities.Standard) != 1) {
			t.Errorf("step %d: route %+v, want MED %d", i, r, step.med)
		}
	}
}
