package control

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A short status shows the services with the most backends that are down, then those with the most connections, in the
// order of the configuration, and sums up the others.
func TestAStatusShowsTheForemostServices(t *testing.T) {
	w, _ := openMany(t, 20)
	connect := func(service, n int) {
		for port := range n {
			w.expect(0, client(fmt.Sprintf("198.18.0.9:%d", 1000+port), fmt.Sprintf("198.19.0.%d:80", service), "S").bytes(), 1)
		}
	}
	connect(3, 2)
	connect(7, 5)
	connect(11, 1)
	w.g.mu.Lock()
	w.g.down[4*13] = true
	w.g.down[4*17], w.g.down[4*17+1] = true, true
	w.g.mu.Unlock()
	w.after(0)
	for _, c := range []struct {
		sel  Selection
		want string
	}{
		{Selection{Foremost: 1}, "s17; 19 76 1 8"},
		{Selection{Foremost: 2}, "s13 s17; 18 72 0 8"},
		{Selection{Foremost: 3}, "s7 s13 s17; 17 68 0 3"},
		{Selection{Foremost: 6}, "s0 s3 s7 s11 s13 s17; 14 56 0 0"},
		{Selection{Foremost: 2, Services: []string{"s3", "s7", "s11"}}, "s3 s7; 1 4 0 1"},
		{Selection{Foremost: 1, Services: []string{"s3", "s11"}}, "s3; 1 4 0 1"},
		{Selection{Foremost: 1, Backend: "b1"}, "s17; 19 19 0 "}, // connections by the hash
		{Selection{Foremost: 20}, "s0 s1 s2 s3 s4 s5 s6 s7 s8 s9 s10 s11 s12 s13 s14 s15 s16 s17 s18 s19; 0 0 0 0"},
		{Selection{Foremost: 2, Limit: 5}, "s13 s17; 18 75 1 8"},
		{Selection{Limit: 54}, "s0 s1 s2 s3 s4 s5 s6 s7 s8 s9 s10 s11 s12 s13; 6 26 2 0"},
	} {
		st, err := w.g.StatusOf(c.sel)
		var names []string
		for _, s := range st.Services {
			names = append(names, s.Name)
		}
		got := fmt.Sprintf("%s; %d %d %d %d", strings.Join(names, " "), st.MoreServices, st.MoreBackends, st.MoreDown, st.MoreConnections)
		if err != nil || got != c.want && !(strings.HasSuffix(c.want, " ") && strings.HasPrefix(got, c.want)) {
			t.Errorf("%+v: %s, want %s; %v", c.sel, got, c.want, err)
		}
	}
}

func TestNamesAreThoseOfTheConfiguration(t *testing.T) {
	w, _ := openMany(t, 3)
	if got := w.g.ServiceNames(); !slices.Equal(got, []string{"s0", "s1", "s2"}) {
		t.Errorf("services %q", got)
	}
	for _, service := range []string{"", "s1"} {
		if got, err := w.g.BackendNames(service); err != nil || !slices.Equal(got, []string{"b0", "b1", "b2", "b3"}) {
			t.Errorf("backends of %q: %q, %v", service, got, err)
		}
	}
	if _, err := w.g.BackendNames("s9"); !errors.Is(err, ErrUnknownService) {
		t.Error(err)
	}
}

// A summary has the sums of what the whole status lists.
func TestASummarySumsUpTheBackends(t *testing.T) {
	w, _ := openMany(t, 20)
	for port := range 9 {
		w.expect(0, client(fmt.Sprintf("198.18.0.9:%d", 1000+port), "198.19.0.3:80", "S").bytes(), 1)
	}
	w.g.mu.Lock()
	w.g.down[4*5], w.g.down[4*5+1] = true, true
	w.g.ejected[4*6] = &ejection{}
	w.g.mu.Unlock()
	for _, err := range []error{
		w.g.Drain("s7", "b1", DrainOptions{}), w.g.SetWeight("s8", "b2", 0, false),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	w.after(0)
	up := map[string]int{"s5": 2, "s6": 3, "s7": 3, "s8": 3}
	for _, sel := range []Selection{{}, {Services: []string{"s3", "s6"}}, {Backend: "b1"}, {Limit: 14}} {
		whole, err := w.g.StatusOf(sel)
		sel.Summary = true
		short, err2 := w.g.StatusOf(sel)
		if err != nil || err2 != nil || len(short.Services) != len(whole.Services) {
			t.Fatalf("%+v: %d and %d services, %v, %v", sel, len(short.Services), len(whole.Services), err, err2)
		}
		for i := range whole.Services {
			s, sum := &whole.Services[i], *short.Services[i].Summary
			want := ServiceSummary{Backends: len(s.Backends), Up: sum.Up}
			for _, b := range s.Backends {
				want.Connections += b.Connections
				want.Opened += b.Opened
				want.ToPackets += b.ToPackets
				want.FromPackets += b.FromPackets
			}
			if sum != want || len(short.Services[i].Backends) != 0 || s.Summary != nil {
				t.Errorf("%+v, %s: %+v, want %+v", sel, s.Name, sum, want)
			}
			if n, ok := up[s.Name]; sel.Backend == "" && sel.Limit == 0 && sum.Up != map[bool]int{true: n, false: 4}[ok] {
				t.Errorf("%s: %d backends are up", s.Name, sum.Up)
			}
		}
	}
}
