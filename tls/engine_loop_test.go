package tls

import (
	"bytes"
	"crypto/tls"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// TestEngineManyOnOneLoop has one goroutine drive 60 connections in random order, in every state at once, with 20 that
// are given up in the middle.
func TestEngineManyOnOneLoop(t *testing.T) {
	s, c := engineConfigs(t)
	r := mathrand.New(mathrand.NewPCG(7, 7))
	o := EngineOptions{Coroutines: new(Coroutines)}
	defer o.Coroutines.Close()
	type pair struct {
		srv, cli *end
		given    bool
	}
	var pairs []*pair
	for i := range 80 {
		pairs = append(pairs, &pair{
			srv: &end{Engine: NewServerEngine(s, o)}, cli: &end{Engine: NewClientEngine(c, o)}, given: i%4 == 0,
		})
	}
	data := bytes.Repeat([]byte("0123456789"), 500)
	for open := len(pairs); open > 0; {
		i := r.IntN(open)
		p := pairs[i]
		p.srv.feed(p.cli.take(), randomCuts(r.Uint64()))
		p.cli.feed(p.srv.take(), randomCuts(r.Uint64()))
		for _, x := range []*end{p.srv, p.cli} {
			if x.err != nil {
				t.Fatal(x.err)
			}
			if x.Handshaken() && x.cs != nil && len(x.events) == 1 {
				x.events = append(x.events, Data)
				if n, err := x.Write(data); n != len(data) || err != nil {
					t.Fatal(n, err)
				}
			}
		}
		done := len(p.srv.data) == len(data) && len(p.cli.data) == len(data)
		if p.given && p.cli.Handshaken() && !p.srv.Handshaken() || done {
			if done && !(bytes.Equal(p.srv.data, data) && bytes.Equal(p.cli.data, data)) {
				t.Error("other data arrived")
			}
			p.srv.Close()
			p.cli.Close()
			open--
			pairs[i] = pairs[open]
		}
	}
	if n := len(o.Coroutines.idle); n != maxIdleCoroutines {
		t.Errorf("%d coroutines are kept", n)
	}
}

// TestEngineThreads has a handshake on a goroutine that is locked to its thread, as loops are, and with AnyThread one
// whose calls come from goroutines of both kinds.
func TestEngineThreads(t *testing.T) {
	s, c := engineConfigs(t)
	onGoroutine := func(lock bool, f func()) {
		done := make(chan bool)
		go func() {
			defer close(done)
			if lock {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
			}
			f()
		}()
		<-done
	}
	onGoroutine(true, func() {
		srv, cli := &end{Engine: NewServerEngine(s, EngineOptions{})}, &end{Engine: NewClientEngine(c, EngineOptions{})}
		exchange(srv, cli, byteWise)
		if !srv.Handshaken() || !cli.Handshaken() {
			t.Error("locked:", srv.err, cli.err)
		}
	})
	o := EngineOptions{AnyThread: true}
	var srv, cli *end
	onGoroutine(true, func() { srv, cli = &end{Engine: NewServerEngine(s, o)}, &end{Engine: NewClientEngine(c, o)} })
	for i := 0; i < 10 && !(srv.Handshaken() && cli.Handshaken()); i++ {
		onGoroutine(i%2 == 0, func() {
			srv.feed(cli.take(), byteWise)
			cli.feed(srv.take(), byteWise)
		})
	}
	if !srv.Handshaken() || !cli.Handshaken() {
		t.Error("from goroutines of both kinds:", srv.err, cli.err)
	}
}

// TestEngineIdleMemory bounds what an idle server connection holds that has moved large records: 8 KiB with either
// version. Suite sessions of the benchmarks measures 10 000.
func TestEngineIdleMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has memory of its own")
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		s, c := engineConfigs(t)
		s.MaxVersion = version
		c.CurvePreferences = []tls.CurveID{tls.X25519}
		const conns = 200
		held := make([]*Engine, conns)
		open := func() *Engine {
			srv, cli := &end{Engine: NewServerEngine(s, EngineOptions{})}, &end{Engine: NewClientEngine(c, EngineOptions{})}
			exchange(srv, cli, wholly)
			say(t, srv, cli, make([]byte, 40000), wholly)
			say(t, cli, srv, make([]byte, 40000), randomCuts(1))
			return srv.Engine
		}
		open()
		before := heapInUse()
		for i := range held {
			held[i] = open()
		}
		after := heapInUse()
		if each := (int64(after) - int64(before)) / conns; each > 8<<10 || each < 500 {
			t.Errorf("version %x: an idle connection holds %d bytes", version, each)
		}
		runtime.KeepAlive(held)
	}
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC() // pools are empty after two
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestEngineFIPS runs the pair of engines again in FIPS 140 mode, where crypto/tls keeps the record layer.
func TestEngineFIPS(t *testing.T) {
	if os.Getenv("MILLRACE_FIPS_CHILD") == "" {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestEngineFIPS$", "-test.v")
		cmd.Env = append(os.Environ(), "GODEBUG=fips140=on", "MILLRACE_FIPS_CHILD=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "in FIPS 140 mode") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	s, c := engineConfigs(t)
	srv, cli := handshaken(t, s, c, EngineOptions{}, wholly)
	if srv.OwnRecords() || cli.OwnRecords() {
		t.Error("the engine has the records")
	}
	say(t, srv, cli, make([]byte, 50000), randomCuts(2))
	say(t, cli, srv, []byte("x"), wholly)
	t.Log("in FIPS 140 mode")
}
