package control

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gateway/health"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/packet"
)

// lived is a service of three backends with the given keys, and keys of the second backend.
func lived(service, second string) string {
	return fmt.Sprintf(`
devices: [{name: gw0}, {name: gw1}]
snat: [198.18.2.1]
table: {size: 4096}
services:
  - name: web
    address: 198.18.1.1:80
    %s
    backends:
      - {name: b11, address: 198.18.2.11:80}
      - {name: b12, address: 198.18.2.12:80%s}
      - {name: b13, address: 198.18.2.13:80}
`, service, second)
}

// life is a test in which the gateway's own time is virtual.
func life(t *testing.T, config string, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, config, lived("", ""))
		f(w)
		w.g.Close()
	})
}

// part returns the part of a pool of the service that leads to a backend, in percent.
func (w *world) part(p *datapath.Pool, backend string) float64 {
	n, size := 0, w.g.cfg.Services[0].HashSize
	for i := range size {
		if id, ok := p.Pick(uint64(i)); ok && w.g.reg.labels[id].Name == backend {
			n++
		}
	}
	return 100 * float64(n) / float64(size)
}

// pools returns how much of the tables now and before leads to b12, in percent, rounded.
func (w *world) pools() [2]int {
	s := w.g.snap.Load().Services[0]
	return [2]int{int(w.part(s.NewFlow[datapath.Family4], "b12") + 0.5), int(w.part(s.MidFlow[datapath.Family4], "b12") + 0.5)}
}

// b12 returns the status of the second backend.
func (w *world) b12() BackendStatus {
	w.t.Helper()
	for _, b := range w.g.Status().Services[0].Backends {
		if b.Name == "b12" {
			return b
		}
	}
	w.t.Fatal("b12 is gone")
	return BackendStatus{}
}

// told returns the events since the last call, without those of hops.
func (w *world) told() (list []string) {
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	for _, e := range w.events {
		if e.What != nexthop.Ready.String() {
			list = append(list, strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Backend, e.What, e.Why)))
		}
	}
	w.events = nil
	return list
}

func (w *world) tells(want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.told()); diff != "" {
		w.t.Errorf("events: %s", diff)
	}
}

// elapse lets the gateway's time pass, and what is due happen.
func elapse(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestTheConfigurationsStatesRuleWhoIsInWhichTable(t *testing.T) {
	for _, c := range []struct {
		second string
		want   [2]int // of the tables now and before, in percent
		usable bool
	}{
		{"", [2]int{33, 33}, true},
		{", state: filling", [2]int{33, 0}, true},
		{", state: draining", [2]int{0, 33}, true},
		{", state: inactive", [2]int{0, 0}, false},
		{", weight: 0", [2]int{0, 0}, true},
		{", weight: 2", [2]int{50, 50}, true},
	} {
		life(t, lived("", c.second), func(w *world) {
			s := w.g.snap.Load()
			if got := w.pools(); got != c.want {
				w.t.Errorf("%q: %v, want %v", c.second, got, c.want)
			}
			if got := s.Backends[1].Usable; got != c.usable {
				w.t.Errorf("%q: usable %v", c.second, got)
			}
			if same := s.Services[0].NewFlow == s.Services[0].MidFlow; same != (c.want[0] == c.want[1]) {
				w.t.Errorf("%q: one table for both: %v", c.second, same)
			}
			w.tells() // what was so from the start is no event
		})
	}
}

func TestABackendThatComesBackFillsSlowly(t *testing.T) {
	life(t, lived("slow_start: 20s", ""), func(w *world) {
		w.setHealth("b12", false)
		w.tells("b12 unhealthy")
		w.setHealth("b12", true)
		w.tells("b12 healthy", "b12 filling health")
		if st := w.b12(); st.State != config.StateFilling || st.ConfigState != config.StateActive || st.SlowStartPercent != 4 || !st.Since.Equal(time.Now()) {
			w.t.Errorf("%+v", st)
		}
		was, tables := [2]int{}, 0
		var last *datapath.Pool
		for i := range 80 { // of 250 ms
			got := w.pools()
			want := int(100 * float64(1+i/4) / float64(42+1+i/4))
			if got[0] < want || got[0] > want+1 || got[1] != 0 || got[0] < was[0] {
				w.t.Fatalf("after %d/4 s: %v, want %d; before that %v", i, got, want, was)
			}
			if p := w.g.snap.Load().Services[0].NewFlow[datapath.Family4]; p != last {
				last = p
				tables++
			}
			was = got
			elapse(250 * time.Millisecond)
		}
		if got := w.pools(); got != [2]int{33, 33} {
			w.t.Errorf("in the end %v", got)
		}
		if tables != growthSteps {
			w.t.Errorf("%d tables", tables)
		}
		w.tells("b12 active slow start is over")
		if st := w.b12(); st.State != config.StateActive || st.SlowStartPercent != 100 || len(w.g.planned) != 0 {
			w.t.Errorf("%+v, planned %v", st, w.g.planned)
		}
		w.setHealth("b12", false)
		w.setHealth("b12", true)
		if st := w.b12(); st.State != config.StateFilling || st.SlowStartPercent != 4 {
			w.t.Errorf("the second time: %+v", st)
		}
	})
}

func TestAShortSlowStartHasFewSteps(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		n    int
		each time.Duration
	}{
		{100 * time.Millisecond, 1, 100 * time.Millisecond},
		{time.Second, 4, 250 * time.Millisecond},
		{5 * time.Second, 20, 250 * time.Millisecond},
		{time.Minute, 20, 3 * time.Second},
	} {
		if n, each := steps(c.d); n != c.n || each != c.each {
			t.Errorf("%v: %d steps of %v", c.d, n, each)
		}
	}
}

func TestANewBackendFillsOnceItsNextHopIsKnown(t *testing.T) {
	life(t, strings.Replace(lived("slow_start: 10s", ""), "      - {name: b12, address: 198.18.2.12:80}\n", "", 1), func(w *world) {
		delete(w.g.opt.Resolver.(nexthop.Static), parse(w.t, lived("", "")).Services[0].Backends[1].Addresses[0].Addr())
		w.reload(lived("slow_start: 10s", ""))
		w.told()
		elapse(time.Minute)
		if got := w.pools(); got != [2]int{0, 0} {
			w.t.Errorf("without a next hop %v", got)
		}
		w.g.hopChanged(w.b12().Address.Addr(), nexthop.Hop{MAC: macBackend, Dev: 1, State: nexthop.Ready})
		if got := w.pools(); got != [2]int{2, 0} { // a 21st of its share
			w.t.Errorf("at first %v", got)
		}
		elapse(10 * time.Second)
		if got := w.pools(); got != [2]int{33, 33} {
			w.t.Errorf("in the end %v", got)
		}
		w.tells("b12 active slow start is over")
	})
}

// A new service has nobody who could carry more than its share meanwhile.
func TestTheBackendsOfANewServiceDoNotFill(t *testing.T) {
	life(t, strings.Replace(lived("slow_start: 10s", ""), "name: web", "name: other", 1), func(w *world) {
		w.reload(lived("slow_start: 10s", ""))
		for _, b := range w.g.Status().Services[0].Backends {
			if b.State != config.StateActive {
				w.t.Errorf("%s is %s", b.Name, b.State)
			}
		}
	})
}

func TestADrainingBackendKeepsItsConnectionsUntilTheDeadline(t *testing.T) {
	life(t, lived("", ""), func(w *world) {
		was := w.open(60)
		if err := w.g.Drain("web", "b12", DrainOptions{Deadline: 30 * time.Second}); err != nil {
			w.t.Fatal(err)
		}
		w.tells("b12 draining operator")
		st := w.b12()
		if st.State != config.StateDraining || !st.OperatorDrained || st.DrainUntil == nil || !st.DrainUntil.Equal(time.Now().Add(30*time.Second)) || st.Connections == 0 {
			w.t.Errorf("%+v", st)
		}
		if got := w.pools(); got != [2]int{0, 33} {
			w.t.Errorf("%v", got)
		}
		goesOn := func(want bool) {
			w.t.Helper()
			for src, backend := range was {
				s := w.send(0, client(src, web, "A").bytes())
				if (s.verdict == packet.Forward) != (want || backend != "198.18.2.12:80") {
					w.t.Fatalf("a connection to %s: %v", backend, s.verdict)
				}
			}
		}
		goesOn(true)
		elapse(29 * time.Second)
		goesOn(true)
		w.tells()
		elapse(2 * time.Second)
		w.tells("b12 inactive drained")
		goesOn(false)
		if st := w.b12(); st.State != config.StateInactive || st.DrainUntil != nil {
			w.t.Errorf("%+v", st)
		}
		w.after(5 * time.Second) // their room is free long before their idle time is over
		if st := w.b12(); st.Connections != 0 {
			w.t.Errorf("%d connections of an inactive backend", st.Connections)
		}
		for src, backend := range was {
			if backend == "198.18.2.12:80" { // a client that tries again is served
				w.connect(src)
			}
		}
	})
}

func TestADrainedBackendIsInactiveWhenItsLastConnectionHasEnded(t *testing.T) {
	life(t, lived("", ""), func(w *world) {
		w.open(60)
		if err := w.g.Drain("web", "b12", DrainOptions{}); err != nil {
			w.t.Fatal(err)
		}
		if st := w.b12(); st.DrainUntil != nil || st.Connections == 0 {
			w.t.Errorf("%+v", st)
		}
		elapse(24 * time.Hour)
		w.tells("b12 draining operator")
		w.after(3 * time.Hour) // they are idle for too long
		elapse(time.Second)
		w.tells("b12 inactive drained")
	})
}

func TestAStatusOfNamedServicesHasThoseOnly(t *testing.T) {
	w := newWorld(t, fmt.Sprintf(worldConfig, ""))
	for _, names := range [][]string{{"dns"}, {"web", "dns"}, nil} {
		st, err := w.g.StatusOf(Selection{Services: names})
		want := max(len(names), 1)
		if names == nil {
			want = 2
		}
		if err != nil || len(st.Services) != want || names != nil && st.Services[want-1].Name != "dns" {
			t.Errorf("%v: %+v, %v", names, st.Services, err)
		}
	}
	if _, err := w.g.StatusOf(Selection{Services: []string{"dns", "wbe"}}); !errors.Is(err, ErrUnknownService) || !strings.Contains(err.Error(), `did you mean "web"`) {
		t.Errorf("%v", err)
	}
}

// A status has the backends of one name, and no more than its limit: it says how many it leaves out.
func TestAStatusIsNarrowed(t *testing.T) {
	w := newWorld(t, `
devices: [{name: gw0}, {name: gw1}]
snat: [198.18.2.1]
services:
  - {name: a, address: 198.18.1.1:80, backends: [{name: x, address: 198.18.2.11:80}, {name: y, address: 198.18.2.12:80}, {name: z, address: 198.18.2.13:80}]}
  - {name: b, address: 198.18.1.2:80, backends: [{name: y, address: 198.18.2.11:80}, {name: z, address: 198.18.2.12:80}]}
  - {name: c, address: 198.18.1.3:80, backends: [{name: z, address: 198.18.2.11:80}]}
`)
	for _, c := range []struct {
		sel  Selection
		want string
	}{
		{Selection{}, "a[x y z] b[y z] c[z] 0 0"},
		{Selection{Backend: "y"}, "a[y] b[y] 0 0"},
		{Selection{Backend: "z", Services: []string{"c", "b"}}, "b[z] c[z] 0 0"},
		{Selection{Backend: "y", Services: []string{"c", "b"}}, "b[y] 0 0"},
		{Selection{Limit: 3}, "a[x y z] 2 3"},
		{Selection{Limit: 4}, "a[x y z] b[y] 1 2"},
		{Selection{Limit: 1, Backend: "z"}, "a[z] 2 2"},
		{Selection{Limit: 6}, "a[x y z] b[y z] c[z] 0 0"},
	} {
		st, err := w.g.StatusOf(c.sel)
		var got strings.Builder
		for _, s := range st.Services {
			var names []string
			for _, b := range s.Backends {
				names = append(names, b.Name)
			}
			fmt.Fprintf(&got, "%s%v ", s.Name, names)
		}
		fmt.Fprintf(&got, "%d %d", st.MoreServices, st.MoreBackends)
		if err != nil || got.String() != c.want {
			t.Errorf("%+v: %s, want %s; %v", c.sel, &got, c.want, err)
		}
	}
	for _, sel := range []Selection{{Backend: "q"}, {Backend: "x", Services: []string{"b", "c"}}} {
		if _, err := w.g.StatusOf(sel); !errors.Is(err, ErrUnknownBackend) {
			t.Errorf("%+v: %v", sel, err)
		}
	}
}

func TestTheLastBackendIsDrainedByForceOnly(t *testing.T) {
	life(t, lived("", ""), func(w *world) {
		refused := func(err error) {
			w.t.Helper()
			if !errors.Is(err, ErrLastBackend) || !strings.Contains(err.Error(), `no other takes new IPv4 connections of service "web"`) {
				w.t.Errorf("%v", err)
			}
			if st := w.b12(); st.State != config.StateActive || st.Weight != 1 || st.OperatorDrained || st.DrainUntil != nil {
				w.t.Errorf("changed: %+v", st)
			}
		}
		done := func(err error) {
			w.t.Helper()
			if err != nil {
				w.t.Error(err)
			}
		}
		done(w.g.Drain("web", "b11", DrainOptions{}))
		w.g.mu.Lock()
		w.g.healthChanged([]health.Change{{ID: 2, State: health.State{Healthy: false}}}) // b13
		w.g.mu.Unlock()
		refused(w.g.Drain("web", "b12", DrainOptions{Deadline: time.Minute}))
		refused(w.g.SetWeight("web", "b12", 0, false))
		done(w.g.Drain("web", "b13", DrainOptions{})) // takes none anyway
		done(w.g.SetWeight("web", "b12", 5, false))
		done(w.g.SetWeight("web", "b12", 0, true))
		done(w.g.SetWeight("web", "b12", 1, false))
		done(w.g.Undrain("web", "b11"))
		done(w.g.Drain("web", "b12", DrainOptions{}))
		done(w.g.Undrain("web", "b12"))
		done(w.g.Drain("web", "b11", DrainOptions{}))
		done(w.g.Drain("web", "b12", DrainOptions{Force: true}))
		if got := w.b12().State; got != config.StateDraining {
			w.t.Errorf("forced: %s", got)
		}
	})
}

// A backend may be the last of one address family only.
func TestTheLastBackendOfAFamilyIsDrainedByForceOnly(t *testing.T) {
	w := newWorld(t, strings.Replace(fmt.Sprintf(worldConfig, ""), `"198.18.2.12:8080, "`, "", 1))
	if err := w.g.Drain("web", "b1", DrainOptions{}); err != nil {
		t.Fatal(err)
	}
	w = newWorld(t, strings.Replace(fmt.Sprintf(worldConfig, ""), `, "[2001:db8:2::12]:8080"`, "", 1))
	if err := w.g.Drain("web", "b1", DrainOptions{}); !errors.Is(err, ErrLastBackend) || !strings.Contains(err.Error(), "IPv6") {
		t.Errorf("%v", err)
	}
	if err := w.g.Drain("web", "b2", DrainOptions{}); err != nil {
		t.Error(err)
	}
}

func TestTheConfigurationDrainsForItsTime(t *testing.T) {
	life(t, lived("drain: 1m", ""), func(w *world) {
		w.open(60)
		w.reload(lived("drain: 1m", ", state: draining"))
		w.tells("b12 draining configuration")
		elapse(59 * time.Second)
		w.reload(lived("drain: 1m\n    hash_size: 251", ", state: draining")) // does not begin anew
		w.tells()
		elapse(2 * time.Second)
		w.tells("b12 inactive drained")
		w.reload(lived("drain: 1m", ""))
		w.tells("b12 active configuration")
	})
	life(t, lived("slow_start: 10s", ", state: draining"), func(w *world) { // without a time, and nobody asked for an end
		w.setHealth("b11", false)
		w.setHealth("b11", true) // fills, so that the service is looked at again and again
		elapse(time.Hour)
		w.tells("b11 unhealthy", "b11 healthy", "b11 filling health", "b11 active slow start is over")
	})
}

func TestUndrainTakesBackWhatDrainSaid(t *testing.T) {
	life(t, lived("slow_start: 10s\n    drain: 1m", ""), func(w *world) {
		w.open(60)
		drain, undrain := func(d time.Duration) {
			w.t.Helper()
			if err := w.g.Drain("web", "b12", DrainOptions{Deadline: d}); err != nil {
				w.t.Fatal(err)
			}
		}, func() {
			w.t.Helper()
			if err := w.g.Undrain("web", "b12"); err != nil {
				w.t.Fatal(err)
			}
		}
		drain(0)
		if st := w.b12(); st.DrainUntil == nil || !st.DrainUntil.Equal(time.Now().Add(time.Minute)) {
			w.t.Errorf("the service's time does not count: %+v", st)
		}
		undrain() // it is warm: at once
		w.tells("b12 draining operator", "b12 active operator")
		drain(time.Second)
		drain(5 * time.Second) // a later word counts
		elapse(4 * time.Second)
		w.tells("b12 draining operator")
		elapse(2 * time.Second)
		w.tells("b12 inactive drained")
		undrain()
		w.tells("b12 filling operator")
		elapse(10 * time.Second)
		w.tells("b12 active slow start is over")
		undrain()
		w.tells()
	})
}

func TestAnOperatorsWeightCountsUntilTheFileChangesIt(t *testing.T) {
	life(t, lived("", ", weight: 2"), func(w *world) {
		set := func(weight int, want ...string) {
			w.t.Helper()
			if err := w.g.SetWeight("web", "b12", weight, false); err != nil {
				w.t.Fatal(err)
			}
			w.tells(want...)
		}
		set(6, "b12 weight operator")
		if st := w.b12(); st.Weight != 6 || st.ConfigWeight != 2 || !st.OperatorWeight {
			w.t.Errorf("%+v", st)
		}
		if got := w.pools(); got != [2]int{75, 75} {
			w.t.Errorf("%v", got)
		}
		set(6)
		w.reload(lived("removed: drop", ", weight: 2")) // other keys
		if got := w.b12().Weight; got != 6 {
			w.t.Errorf("a reload made the weight %d", got)
		}
		w.reload(lived("", ", weight: 4"))
		if st := w.b12(); st.Weight != 4 || st.OperatorWeight {
			w.t.Errorf("the file's word does not count: %+v", st)
		}
		w.told()
		set(0, "b12 weight operator")
		if got := w.pools(); got != [2]int{0, 0} {
			w.t.Errorf("%v", got)
		}
		set(-1, "b12 weight operator")
		if st := w.b12(); st.Weight != 4 || st.OperatorWeight {
			w.t.Errorf("%+v", st)
		}
		if err := w.g.SetWeight("web", "b12", 1001, false); err == nil {
			w.t.Error("weight 1001")
		}
	})
}

func TestADrainOutlivesReloadsUntilTheFileChangesTheState(t *testing.T) {
	life(t, lived("", ""), func(w *world) {
		w.open(10)
		if err := w.g.Drain("web", "b12", DrainOptions{Deadline: time.Hour}); err != nil {
			w.t.Fatal(err)
		}
		w.reload(lived("removed: drop", ", weight: 3"))
		if st := w.b12(); st.State != config.StateDraining || !st.OperatorDrained || st.DrainUntil == nil {
			w.t.Errorf("%+v", st)
		}
		w.reload(lived("", ", state: filling"))
		if st := w.b12(); st.State != config.StateFilling || st.OperatorDrained {
			w.t.Errorf("%+v", st)
		}
		elapse(2 * time.Hour)
		if st := w.b12(); st.State != config.StateFilling {
			w.t.Errorf("an old deadline counts: %+v", st)
		}
	})
}

func TestUnknownNamesAreAnsweredWithKnownOnes(t *testing.T) {
	life(t, lived("", ""), func(w *world) {
		for _, c := range []struct {
			service, backend string
			err              error
			says             string
		}{
			{"wbe", "b12", ErrUnknownService, `did you mean "web"?`},
			{"database", "b12", ErrUnknownService, "there is web"},
			{"web", "b21", ErrUnknownBackend, `did you mean "b11"? there is b11, b12, b13`},
			{"web", "", ErrUnknownBackend, "there is b11, b12, b13"},
		} {
			for _, err := range []error{
				w.g.Drain(c.service, c.backend, DrainOptions{}), w.g.Undrain(c.service, c.backend), w.g.SetWeight(c.service, c.backend, 1, false),
			} {
				if !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.says) {
					w.t.Errorf("%s %s: %v", c.service, c.backend, err)
				}
			}
		}
		w.tells()
		w.g.Close()
		if err := w.g.Drain("web", "b12", DrainOptions{}); !errors.Is(err, ErrClosed) {
			w.t.Errorf("after the end: %v", err)
		}
	})
	var all []string
	for i := range 20 {
		all = append(all, fmt.Sprint("service-", i))
	}
	if got := nearby("x", all); !strings.HasSuffix(got, "service-7 and 12 more") {
		t.Error(got)
	}
}

// While one fills and another drains, connections in the middle go where they went.
func TestMidflowPacketsFindTheirBackendWhileOthersComeAndGo(t *testing.T) {
	config := func(state11, state12 string) string {
		c := lived("source: client", ", state: "+state12)
		return strings.Replace(c, "2.11:80", "2.11:80, state: "+state11, 1)
	}
	life(t, config("active", "inactive"), func(w *world) {
		was := w.open(100)
		w.reload(config("draining", "filling"))
		w.h = w.handlerWith(0, 0) // as in another gateway
		for src, backend := range was {
			if got := flowOf(w.expect(0, client(src, web, "A").bytes(), 1)).dst.String(); got != backend {
				w.t.Fatalf("%s moved from %s to %s", src, backend, got)
			}
		}
		seen := map[string]bool{}
		for i := range 100 {
			seen[flowOf(w.connect(fmt.Sprintf("198.18.0.77:%d", 1000+i))).dst.String()] = true
		}
		if !seen["198.18.2.12:80"] || seen["198.18.2.11:80"] {
			w.t.Errorf("new connections went to %v", seen)
		}
	})
}

// Nobody active or draining is left for what began before: it tries one that fills.
func TestMidflowPacketsTakeWhoIsLeft(t *testing.T) {
	all := strings.ReplaceAll(lived("source: client", ""), ":80}", ":80, state: filling}")
	life(t, all, func(w *world) {
		w.expect(0, client("198.18.0.9:1000", web, "A").bytes(), 1)
	})
}

func TestStatusNamesEveryState(t *testing.T) {
	life(t, lived("slow_start: 1m", ", state: filling"), func(w *world) {
		if err := w.g.Drain("web", "b13", DrainOptions{Deadline: time.Hour}); err != nil {
			w.t.Fatal(err)
		}
		var got []string
		for _, b := range w.g.Status().Services[0].Backends {
			got = append(got, fmt.Sprint(b.Name, " ", b.State, " ", b.SlowStartPercent))
		}
		if want := []string{"b11 active 100", "b12 filling 4", "b13 draining 100"}; !slices.Equal(got, want) {
			w.t.Errorf("%q", got)
		}
	})
}

// A resolver that starts tells of thousands of hops one by one: the snapshot is not made anew for each,
// and none is forgotten.
func TestAStormOfHopsIsEnteredTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := parse(t, many(100, ""))
		w := newWorldWith(t, c, nexthop.Static{})
		last, snapshots := w.g.snap.Load(), 0
		for a, hop := range hopsOf(c) {
			w.g.hopChanged(a, hop)
			if s := w.g.snap.Load(); s != last {
				last, snapshots = s, snapshots+1
			}
		}
		elapse(hopWindow)
		if snapshots > hopBurst {
			t.Errorf("%d snapshots", snapshots)
		}
		for i, e := range w.g.snap.Load().Endpoints {
			if e.Hop.State != datapath.HopReady {
				t.Fatalf("endpoint %d is %v", i, e.Hop.State)
			}
		}
		elapse(hopWindow)
		w.g.hopChanged(last.Endpoints[0].Addr(), nexthop.Hop{State: nexthop.NoRoute})
		if w.g.snap.Load().Endpoints[0].Hop.State != datapath.HopNoRoute {
			t.Error("a lone change waits")
		}
		w.g.Close()
	})
}
