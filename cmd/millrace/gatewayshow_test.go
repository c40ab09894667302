package main

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gateway/daemon"
	server "github.com/millrace/millrace/internal/controlsocket"
	l4control "github.com/millrace/millrace/l4/control"
)

// services returns n services of two backends; some have trouble, some many connections.
func services(n int, trouble, busy map[int]bool) (list []l4control.ServiceStatus) {
	for i := range n {
		s := l4control.ServiceStatus{Name: fmt.Sprint("s", i)}
		for k := range 2 {
			b := l4control.BackendStatus{Name: fmt.Sprint("b", k), Healthy: !trouble[i], Connections: 1, Opened: 2, ToPackets: 3, FromPackets: 4}
			if busy[i] {
				b.Connections, b.ToPackets = 100, 100
			}
			s.Backends = append(s.Backends, b)
		}
		list = append(list, s)
	}
	return list
}

func TestTheStatusShowsAllOfARejectedReload(t *testing.T) {
	socket := scriptedGateway(t, 0, func(int) admin.Status {
		st := statusWith(config.StateActive, 1)
		st.Reload.Failed, st.Reload.Error = true, "gw.yaml:3:1: one is wrong\n  one: 1\n  ^\ngw.yaml:4:1: another is wrong"
		return st
	})
	code, out, _ := run("gateway", "status", "--socket", socket)
	for _, want := range []string{"the last reload was rejected:\n  gw.yaml:3:1: one is wrong\n", "\n  gw.yaml:4:1: another is wrong\n"} {
		if code != exitOK || !strings.Contains(out, want) {
			t.Errorf("code %d, no %q in\n%s", code, want, out)
		}
	}
}

func TestStatusSaysWhatItLeavesOut(t *testing.T) {
	for _, tc := range []struct {
		st      l4control.Status
		limited bool
		want    string
	}{
		{l4control.Status{}, false, ""},
		{
			l4control.Status{MoreServices: 9950, MoreBackends: 39_800, MoreDown: 3, MoreConnections: 1234},
			false,
			"\n9,950 more services: 39,800 backends, 3 of them down, 1,234 connections (--all, or name services)\n",
		},
		{l4control.Status{MoreBackends: 7, MoreConnections: 5}, true, "\n7 more backends, 0 of them down, 5 connections (--limit)\n"},
	} {
		var out bytes.Buffer
		showMore(&console{out: &out}, &tc.st, tc.limited)
		if out.String() != tc.want {
			t.Errorf("%q, want %q", &out, tc.want)
		}
	}
}

// The status asks for no more than it shows, and completion for names alone.
func TestCommandsAskForWhatTheyShow(t *testing.T) {
	var asked []string
	socket := servedControl(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, strings.TrimSuffix(r.URL.String(), "?"))
		server.Reply(w, admin.Status{Started: time.Now()})
	})
	for _, tc := range []struct{ args, want string }{
		{"gateway status", "/v1/status?foremost=50"},
		{"gateway status --all", "/v1/status"},
		{"gateway status --json", "/v1/status"},
		{"gateway status --summary", "/v1/status?summary=true"},
		{"gateway status --summary --json", "/v1/status?summary=true"},
		{"gateway status web", "/v1/status?service=web"},
		{"gateway status --backend b1", "/v1/status?backend=b1&foremost=50"},
		{"gateway status --limit 10", "/v1/status?limit=10"},
		{"__complete gateway status web w", "/v1/names"},
		{"__complete gateway drain web d", "/v1/names?service=web"},
		{"__complete gateway connections --backend w", "/v1/names?service="},
	} {
		asked = nil
		t.Setenv(socketVariable, socket)
		if code, _, err := run(strings.Fields(tc.args)...); code != exitOK || len(asked) != 1 || asked[0] != tc.want {
			t.Errorf("%s: asked for %q, want %s; code %d, %s", tc.args, asked, tc.want, code, err)
		}
	}
}

func TestTheSummaryOfManyBackendsNamesTheBusiest(t *testing.T) {
	s := daemon.Summary{Gateway: l4control.Status{Services: services(1000, nil, map[int]bool{777: true})}}
	text := s.String()
	if n := strings.Count(text, "\n"); n != 52 { // 50 backends, the others, the balance
		t.Errorf("%d lines", n)
	}
	if !strings.HasPrefix(text, "s777 ") || !strings.Contains(text, "\n1950 more backends: 3900 connections, 5850 packets to the backend, 7800 from it\n") {
		t.Errorf("%s", text)
	}
}
