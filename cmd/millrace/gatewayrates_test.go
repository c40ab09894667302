package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/admin"
	l4control "github.com/millrace/millrace/l4/control"
	l7control "github.com/millrace/millrace/l7/control"
)

// busy is a gateway that has served n requests and n packets of each kind since its start.
func busy(started time.Time, n uint64) *admin.Status {
	st := &admin.Status{Started: started, Listeners: &l7control.Status{}}
	st.Engine.Name = "cpu"
	st.Counts = admin.Counts{Received: 100 * n, Forwarded: 90 * n, Dropped: map[string]uint64{"malformed": 6 * n, "unknown": 4 * n}}
	st.Listeners.Counts = l7control.Counts{Requests: 10 * n, Connections: n}
	st.Listeners.Pools = []l7control.PoolStatus{{Name: "app", Backends: []l7control.BackendStatus{
		{Name: "a1", Responses: map[string]uint64{"2xx": 6 * n, "5xx": n}, Failures: map[string]uint64{"reset": n}},
		{Name: "a2", Responses: map[string]uint64{"2xx": 3 * n}},
		{Name: "idle"},
	}}}
	st.Gateway.Services = []l4control.ServiceStatus{
		{Name: "dns", Backends: []l4control.BackendStatus{{Name: "d1", Opened: n, ToPackets: 20 * n, FromPackets: 10 * n}}},
		{Name: "web", Summary: &l4control.ServiceSummary{Opened: 3 * n, ToPackets: 5 * n, FromPackets: 5 * n}},
	}
	return st
}

// TestRatesAreOfTheTimeBetween compares two pictures four seconds apart.
func TestRatesAreOfTheTimeBetween(t *testing.T) {
	start := time.Now()
	var out bytes.Buffer
	ratesOf(busy(start, 1400), busy(start, 1000), 4*time.Second).show(&console{out: &out})
	var rows [][]string
	for line := range strings.Lines(out.String()) {
		rows = append(rows, strings.Fields(line))
	}
	want := [][]string{
		strings.Fields("a second 1,000 requests, 100 connections of clients"),
		strings.Fields("a second 10,000 packets received, 9,000 forwarded, 1,000 dropped"),
		strings.Fields("of backend responses/s failures and 5xx/s new connections/s packets/s"),
		strings.Fields("dns d1 0 0 100 3,000"),
		strings.Fields("web all 0 0 300 1,000"),
		strings.Fields("app a1 700 200 0 0"),
		strings.Fields("app a2 300 0 0 0"),
		{},
	}
	if got := fmt.Sprint(rows); got != fmt.Sprint(want) {
		t.Errorf("%s, want\n%s", out.String(), fmt.Sprint(want))
	}
}

// TestRatesThatThereAreNot: nothing is compared with what another process has counted, and a backend that is new counts from 0.
func TestRatesThatThereAreNot(t *testing.T) {
	start := time.Now()
	var out bytes.Buffer
	c := &console{out: &out}
	for _, before := range []*admin.Status{nil, busy(start.Add(-time.Hour), 1000)} {
		ratesOf(busy(start, 10), before, time.Second).show(c)
	}
	if out.Len() > 0 {
		t.Errorf("%q", out.String())
	}
	now, before := busy(start, 10), busy(start, 10)
	before.Gateway.Services = nil
	now.Gateway.Services[0].Backends[0].Opened = 3
	if r := ratesOf(now, before, 2*time.Second); r.rows[0].opened != 1.5 {
		t.Errorf("%+v", r.rows)
	}
	before = busy(start, 1000)
	if r := ratesOf(now, before, time.Second); r.rows[0].opened != 3 {
		t.Errorf("a counter that began anew: %+v", r.rows[0])
	}
}

// TestOnlyTheBusiestBackendsHaveRates of very many.
func TestOnlyTheBusiestBackendsHaveRates(t *testing.T) {
	start := time.Now()
	now, before := busy(start, 0), busy(start, 0)
	for i := range 10_000 {
		b := l4control.BackendStatus{Name: fmt.Sprint("b", i), ToPackets: uint64(i)}
		now.Gateway.Services[0].Backends = append(now.Gateway.Services[0].Backends, b)
		b.ToPackets = 0
		before.Gateway.Services[0].Backends = append(before.Gateway.Services[0].Backends, b)
	}
	var out bytes.Buffer
	ratesOf(now, before, time.Second).show(&console{out: &out})
	if got := out.String(); strings.Count(got, "\n") != 2+1+mostRates+2 || !strings.Contains(got, "dns  b9999") || !strings.Contains(got, "9,979 more backends") {
		t.Errorf("%s", got)
	}
}

// TestWatchHasRatesFromTheSecondTimeOn.
func TestWatchHasRatesFromTheSecondTimeOn(t *testing.T) {
	var out bytes.Buffer
	start, asked := time.Now(), 0
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	socket := scriptedGateway(t, 0, func(i int) admin.Status {
		if asked = i; i == 2 {
			cancel()
		}
		return *busy(start, uint64(1000*i))
	})
	if code := execute(ctx, []string{"gateway", "status", "--watch=100ms", "--socket", socket}, &console{out: &out, err: &out}); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	first, second, _ := strings.Cut(out.String(), "\n\n\n")
	if strings.Contains(first, "requests/s") || strings.Count(out.String(), "responses/s") != 1 {
		t.Errorf("%d times:\n%s\n=\n%s", asked, first, second)
	}
}
