package proxy

import (
	"bytes"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/semantics"
)

// shadow is a backend that gets copies.
type shadow struct {
	lock sync.Mutex
	got  []string // method, target, one field and content
	hold chan struct{}
}

func (s *shadow) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.lock.Lock()
	s.got = append(s.got, r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get("X-A")+" "+r.Header.Get("X-Forwarded-For")+" "+string(body))
	s.lock.Unlock()
	if s.hold != nil {
		<-s.hold
	}
	w.WriteHeader(500)
	_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<20))
}

// mirroredRig is a rig whose rule has a mirror.
func mirroredRig(t *testing.T, backend, to string, percent int) *rig {
	t.Helper()
	return newRig(t, backend, func(r *rig) {
		p, err := pool.New(pool.Options{Name: "shadow"}, []pool.BackendOptions{{Name: "s", Address: netip.MustParseAddrPort(to)}}, 1)
		must(t, err)
		other := &Pool{Pool: p}
		r.tree.Pools = append(r.tree.Pools, other)
		r.rule.RequestHeaders = &rewrite.Headers{Set: []semantics.Field{{Name: "x-a", Value: "set"}}}
		r.rule.Rewrite = &rewrite.Rewrite{Path: rewrite.PathModifier{Type: rewrite.ReplacePrefixMatch, Prefix: "/a", Value: "/b"}}
		r.rule.Mirror = &Mirror{
			Rule:    &Rule{Name: "all", Backends: []Weighted{{Pool: other, Weight: 1}}, RequestHeaders: r.rule.RequestHeaders, Rewrite: r.rule.Rewrite, Attempts: 1},
			Percent: percent, Most: 1 << 20,
		}
	})
}

// copies waits until so many copies have ended, and returns how.
func (r *rig) copies(n uint64) (got [MirrorResults]uint64) {
	r.t.Helper()
	r.eventually("the end of copies", func() bool {
		got = r.worker.Stats().Mirrored
		sum := uint64(0)
		for _, k := range got {
			sum += k
		}
		return sum == n
	})
	return got
}

// Copies have what the request has, and their responses disturb no client.
func TestRequestsAreMirrored(t *testing.T) {
	s := &shadow{}
	server := unstarted(t, s)
	server.Start()
	r := mirroredRig(t, echoBackend(t, false), strings.TrimPrefix(server.URL, "http://"), 100)
	n := uint64(0)
	for _, h2 := range []bool{false, true} {
		c := r.client(h2)
		for _, size := range []int{0, 1, 70 << 10} {
			post(t, c, "https://"+r.secure+"/a/x?y=z", bytes.Repeat([]byte("c"), size))
			n++
			if got := r.copies(n); got[MirrorAnswered] != n {
				t.Fatalf("%v", got)
			}
			s.lock.Lock()
			if last := s.got[len(s.got)-1]; last != "POST /b/x?y=z set 127.0.0.1 "+strings.Repeat("c", size) {
				t.Errorf("HTTP/2 %v, %d bytes: the copy is %.100s (%d)", h2, size, last, len(last))
			}
			s.lock.Unlock()
		}
	}
	post(t, r.client(false), "http://"+r.addr+"/a/x", bytes.Repeat([]byte("c"), 1<<20+1)) // over plain TCP, where content may pass by itself
	resp, err := r.client(true).Do(newRequest(t, "POST", "https://"+r.secure+"/a", unsized{bytes.NewReader(make([]byte, 2<<20))}))
	must(t, err)
	resp.Body.Close()
	if got := r.copies(n + 2); got[MirrorTooLarge] != 2 || got[MirrorAnswered] != n {
		t.Errorf("%v", got)
	}
	post(t, r.client(false), "http://"+r.addr+"/a/x", bytes.Repeat([]byte("c"), 900<<10))
	if got := r.copies(n + 3); got[MirrorAnswered] != n+1 {
		t.Errorf("%v", got)
	}
	s.lock.Lock()
	if last := s.got[len(s.got)-1]; len(last) < 900<<10 {
		t.Errorf("the copy has %d bytes", len(last))
	}
	s.lock.Unlock()
	r.settled()
}

// A pool that hangs, or is not there, delays no request.
func TestMirrorsDoNotDelay(t *testing.T) {
	s := &shadow{hold: make(chan struct{})}
	server := unstarted(t, s)
	server.Start()
	r := mirroredRig(t, echoBackend(t, false), strings.TrimPrefix(server.URL, "http://"), 100)
	for range maxMirrors + 20 {
		post(t, r.client(true), "https://"+r.secure+"/a", []byte("c"))
	}
	if got := r.copies(20); got[MirrorBusy] != 20 {
		t.Errorf("%v", got)
	}
	close(s.hold)
	if got := r.copies(maxMirrors + 20); got[MirrorAnswered] != maxMirrors {
		t.Errorf("%v", got)
	}
	r.settled()
	r = mirroredRig(t, echoBackend(t, false), noBackend(t), 100)
	post(t, r.client(false), "http://"+r.addr+"/a", []byte("c"))
	if got := r.copies(1); got[MirrorFailed] != 1 {
		t.Errorf("%v", got)
	}
	r.do(func() {
		if r.worker.mirrors != 0 {
			t.Errorf("%d copies are left", r.worker.mirrors)
		}
	})
}

// A request that ends before its content leaves no copy, and others get their share of copies.
func TestSomeRequestsAreMirrored(t *testing.T) {
	s := &shadow{}
	server := unstarted(t, s)
	server.Start()
	early := unstarted(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(403) }))
	early.Start()
	r := mirroredRig(t, strings.TrimPrefix(early.URL, "http://"), strings.TrimPrefix(server.URL, "http://"), 100)
	in, out := io.Pipe()
	resp, err := r.client(true).Do(newRequest(t, "POST", "https://"+r.secure+"/a", in))
	must(t, err)
	resp.Body.Close()
	out.Close()
	if got := r.copies(1); got[MirrorIncomplete] != 1 {
		t.Errorf("%v", got)
	}
	r = mirroredRig(t, strings.TrimPrefix(early.URL, "http://"), strings.TrimPrefix(server.URL, "http://"), 25)
	const n = 400
	for range n {
		resp, err := r.client(false).Get("http://" + r.addr + "/a")
		must(t, err)
		resp.Body.Close()
	}
	r.settled()
	r.eventually("the end of copies", func() bool { return r.worker.mirrors == 0 })
	r.do(func() {
		if got := r.worker.Stats().Mirrored[MirrorAnswered]; got < n/8 || got > n/2 {
			t.Errorf("%d of %d requests were mirrored", got, n)
		}
	})
}
