package control

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/internal/testkit/testport"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/stack"
)

const passedConfig = `
loops: 2
listeners: [{name: web, address: "LISTEN", protocol: HTTP, timeouts: {drain: 7s}}]
routes: [{name: r, rules: [{backend_refs: [{name: p}]}]}]
pools:
- name: p
  health: {type: tcp, interval: 1h}
  backends: [{name: a, address: "192.0.2.1:80"}, {name: b, address: "192.0.2.2:80"}, {name: c, address: "192.0.2.3:80"}, {name: d, address: "192.0.2.4:80"}]
`

// openSet opens the listeners of a configuration, which nothing runs yet.
func openSet(t *testing.T, src string, in *Inherited) *Set {
	t.Helper()
	cfg, err := config.Parse("test.yaml", []byte("admin: {socket: \"\"}\n"+src))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(cfg, Options{Log: slog.New(slog.DiscardHandler), Inherited: in})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestTheNextProcessHasPoolsAndSocketsAsTheyWere passes the sockets and the states of backends on: those that probes have found unhealthy,
// that an operator drains, and that have a weight of the operator's.
func TestTheNextProcessHasPoolsAndSocketsAsTheyWere(t *testing.T) {
	at := testport.Hold(t).String()
	src := strings.Replace(passedConfig, "LISTEN", at, 1)
	old := openSet(t, src, nil)
	ended := make(chan error, 1)
	go func() { ended <- old.Run() }()
	old.pools["p"].ByName("a").SetHealthy(stack.Now(), false, errors.New("refused"))
	if err := errors.Join(old.Drain("p", "b", 0, false), old.SetWeight("p", "c", 3, false)); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	in, err := Pass(old)
	if err != nil {
		t.Fatal(err)
	}
	if len(in.Sockets) != 2 || len(in.Pools) != 1 || len(in.Pools[0].Backends) != 3 || in.Generation != 1 || len(in.Secret) == 0 {
		t.Errorf("%+v", in)
	}
	HoldAccept(old, true, nil)
	in.Locks["/elsewhere"] = lock
	next := openSet(t, src, in)
	defer next.Close()
	if _, err := lock.Stat(); err == nil {
		t.Error("a lock of no folder is held")
	}
	p := next.pools["p"]
	for _, b := range p.Status(stack.Now()).Backends {
		state, weight := b.Backend.Operator()
		name := b.Backend.Name()
		if b.Healthy != (name != "a") || (state != nil && *state == pool.Draining) != (name == "b") || (weight != nil && *weight == 3) != (name == "c") {
			t.Errorf("%s: %+v", name, b)
		}
	}
	if next.opt.Inherited != nil {
		t.Error("a pool of a reload would begin with what was inherited")
	}
	old.Shutdown()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	c, err := net.Dial("tcp", at) // it waits for the loops of the next process
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// TestTheDrainTimeOfAnUpgrade is that of the listeners, or the command's; another signal shortens it.
func TestTheDrainTimeOfAnUpgrade(t *testing.T) {
	s := openSet(t, strings.Replace(passedConfig, "LISTEN", testport.Hold(t).String(), 1), nil)
	ended := make(chan error, 1)
	go func() { ended <- s.Run() }()
	defer func() {
		s.Shutdown()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	if d := s.ShutdownLimit(); d != 7*time.Second+closeTime {
		t.Errorf("%v", d)
	}
	DrainFor(s, time.Hour)
	if d := s.ShutdownLimit(); d != time.Hour+closeTime {
		t.Errorf("%v", d)
	}
	s.drainBy.begin(time.Hour)
	first := s.drainBy.get()
	Hurry(s)
	if left := time.Until(s.drainBy.get()); left > 7*time.Second || left < 5*time.Second || !s.drainBy.get().Before(first) {
		t.Errorf("%v are left", left)
	}
	hurried := s.drainBy.get()
	s.drainBy.limit(time.Hour)
	if s.drainBy.get() != hurried {
		t.Error("the end has moved to later")
	}
}
