package proxy

import (
	ctls "crypto/tls"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/tls"
)

// idleBytes is what a client's connection with TLS may hold of the heap between requests: 3.1 KB, of which its two keys are
// 0.9 (docs/design/056-batch-crypto.md), and 1.5 KB of its two ends in package memtransport. docs/design/030-l7-cost.md has the
// parts.
const idleBytes = 5<<10 + 256

// TestIdleTLSConnectionsAreSmall bounds what connections with TLS hold that have made requests and are idle, before and after
// they are compacted: no buffers, nothing of the handshake.
func TestIdleTLSConnectionsAreSmall(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has memory of its own")
	}
	if os.Getenv("MILLRACE_IDLE_CHILD") == "" { // alone in a process: what other tests have left goes away meanwhile
		cmd := exec.Command(os.Args[0], "-test.run", "^TestIdleTLSConnectionsAreSmall$", "-test.v")
		cmd.Env = append(os.Environ(), "MILLRACE_IDLE_CHILD=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	cert, roots := testcert.SelfSigned("gateway.test")
	for _, version := range []uint16{ctls.VersionTLS12, ctls.VersionTLS13} {
		r := newMemRig(t, func(r *memRig, tree *Tree) {
			tree.Listeners[0].TLS = &ctls.Config{Certificates: []ctls.Certificate{cert}}
		})
		config := &ctls.Config{RootCAs: roots, ServerName: "gateway.test", MaxVersion: version}
		open := func() *memtransport.Peer {
			p := r.connect(memHTTP1)
			speakTLS(t, r, p, config, "GET / HTTP/1.1\r\nHost: gateway.test\r\n\r\n", 2)
			return p
		}
		const conns = 200
		held := make([]*memtransport.Peer, conns)
		open()
		before := heapInUse()
		for i := range held {
			held[i] = open()
		}
		busy := heapInUse()
		r.pass(2 * link.CompactTime)
		idle := heapInUse()
		for _, x := range []struct {
			when string
			heap uint64
			most int64
		}{{"at once", busy, idleBytes + 1<<10}, {"compacted", idle, idleBytes}} {
			if each := (int64(x.heap) - int64(before)) / conns; each > x.most || each < 500 {
				t.Errorf("version %x: an idle connection, %s, holds %d bytes, want at most %d", version, x.when, each, x.most)
			}
		}
		for l := range r.worker.fronts {
			if cap(l.In)+cap(l.Raw)+cap(l.Out)+cap(l.Sealed) > 0 {
				t.Fatal("an idle connection holds a buffer")
			}
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

// speakTLS opens TLS over a connection in memory and makes requests, one after the other.
func speakTLS(t *testing.T, r *memRig, p *memtransport.Peer, config *ctls.Config, request string, times int) {
	t.Helper()
	e := tls.NewClientEngine(config, tls.EngineOptions{})
	defer e.Close()
	var got strings.Builder
	exchange := func() {
		for range 4 {
			p.Write(e.Pending())
			e.Advance(len(e.Pending()))
			r.run()
			for in := p.Take(); ; {
				ev, n, err := e.Next(in)
				if err != nil {
					t.Fatal(err)
				}
				if in = in[n:]; ev.Kind == tls.NeedInput {
					break
				}
				got.Write(ev.Data)
			}
		}
	}
	for exchange(); times > 0; times-- {
		if _, err := e.Write([]byte(request)); err != nil {
			t.Fatal(err)
		}
		got.Reset()
		if exchange(); !strings.HasSuffix(got.String(), "\r\n\r\nok") {
			t.Fatalf("the response is %q", got.String())
		}
	}
}
