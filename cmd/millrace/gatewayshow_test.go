package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/gateway"
	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/gateway/daemon"
)

// services returns n services of two backends; some have trouble, some many connections.
func services(n int, trouble, busy map[int]bool) (list []gateway.ServiceStatus) {
	for i := range n {
		s := gateway.ServiceStatus{Name: fmt.Sprint("s", i)}
		for k := range 2 {
			b := gateway.BackendStatus{Name: fmt.Sprint("b", k), Healthy: !trouble[i], Connections: 1, Opened: 2, ToPackets: 3, FromPackets: 4}
			if busy[i] {
				b.Connections, b.ToPackets = 100, 100
			}
			s.Backends = append(s.Backends, b)
		}
		list = append(list, s)
	}
	return list
}

func TestStatusOfManyServicesShowsTheForemost(t *testing.T) {
	list := services(1000, map[int]bool{700: true, 900: true}, map[int]bool{800: true})
	shown, more := foremost(list, 5)
	var names []string
	for _, s := range shown {
		names = append(names, s.Name)
	}
	if got, want := strings.Join(names, " "), "s0 s1 s700 s800 s900"; got != want {
		t.Errorf("shown %s, want %s", got, want)
	}
	if want := (moreServices{services: 995, backends: 1990, connections: 1990}); more != want {
		t.Errorf("%+v, want %+v", more, want)
	}
	if shown, more := foremost(list[:5], 5); len(shown) != 5 || more.services != 0 {
		t.Errorf("%d shown and %d more of 5", len(shown), more.services)
	}
	if _, more := foremost(services(9, map[int]bool{1: true, 2: true}, nil), 1); more.down != 2 {
		t.Errorf("%d backends of those that are not shown are down, want 2", more.down)
	}
	var out bytes.Buffer
	st := admin.Status{Gateway: gateway.Status{Services: shown}}
	c := &console{out: &out}
	showStatus(c, &st)
	more.show(c)
	if !strings.HasSuffix(out.String(), "995 more services: 1,990 backends, 0 of them down, 1,990 connections (--all, or name services)\n") {
		t.Errorf("the text does not say what it leaves out:\n%s", out.String())
	}
}

func TestTheSummaryOfManyBackendsNamesTheBusiest(t *testing.T) {
	s := daemon.Summary{Gateway: gateway.Status{Services: services(1000, nil, map[int]bool{777: true})}}
	text := s.String()
	if n := strings.Count(text, "\n"); n != 52 { // 50 backends, the others, the balance
		t.Errorf("%d lines", n)
	}
	if !strings.HasPrefix(text, "s777 ") || !strings.Contains(text, "\n1950 more backends: 3900 connections, 5850 packets to the backend, 7800 from it\n") {
		t.Errorf("%s", text)
	}
}
