package proxy

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/l7/transport"
)

// placed is a rig whose rule has places, and whose backend answers when the test wants it to.
type placed struct {
	*memRig
	places  *Places
	reached []string                      // paths of the requests that backends got, in their order
	by      map[string]*memtransport.Peer // the connection of each
}

func newPlaced(t *testing.T, o PlacesOptions) *placed {
	t.Helper()
	p := &placed{places: NewPlaces(o), by: map[string]*memtransport.Peer{}}
	p.memRig = newMemRig(t, func(r *memRig, _ *Tree) {
		r.rule.Guard = &Guard{Places: p.places, Counts: NewGuardCounts(1)}
		r.rule.Attempt = 0
	})
	p.backend = func(peer *memtransport.Peer) {
		peer.Handler = func(peer *memtransport.Peer) {
			for line := range strings.Lines(string(peer.Take())) {
				if word := strings.Fields(line); len(word) == 3 && strings.HasPrefix(word[2], "HTTP/") {
					p.reached = append(p.reached, word[1])
					p.by[word[1]] = peer
				}
			}
			if peer.Ended {
				peer.Close()
			}
		}
	}
	return p
}

// askAll opens a connection for each path and sends a request for it.
func (p *placed) askAll(paths ...string) (clients []*memtransport.Peer) {
	p.t.Helper()
	for _, path := range paths {
		c := p.connect(memHTTP1)
		c.Write([]byte("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n"))
		p.run()
		clients = append(clients, c)
	}
	return clients
}

// answer answers the request for a path.
func (p *placed) answer(path string) {
	p.t.Helper()
	p.by[path].Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
	p.run()
}

func (p *placed) expect(want PlacesStatus, reached ...string) {
	p.t.Helper()
	if got := p.places.Status(); got != want || !slices.Equal(p.reached, reached) {
		p.t.Fatalf("%+v, want %+v; %v reached backends, want %v", got, want, p.reached, reached)
	}
}

// TestRequestsWaitForAPlaceInOrder and get one as others end, however these end.
func TestRequestsWaitForAPlaceInOrder(t *testing.T) {
	p := newPlaced(t, PlacesOptions{Requests: 2, Pending: 3, Wait: 5 * time.Second})
	c := p.askAll("/a", "/b", "/c", "/d", "/e", "/f")
	p.expect(PlacesStatus{Used: 2, Pending: 3, Full: 1}, "/a", "/b")
	if got := string(c[5].Take()); !strings.HasPrefix(got, "HTTP/1.1 503 ") || !strings.Contains(got, "connection_limit_reached") {
		t.Errorf("one too many: %q", got)
	}
	p.answer("/a")
	p.expect(PlacesStatus{Used: 2, Pending: 2, Full: 1}, "/a", "/b", "/c")
	c[3].Abort() // /d leaves: it is passed over
	p.run()
	p.expect(PlacesStatus{Used: 2, Pending: 1, Full: 1}, "/a", "/b", "/c")
	c[1].Abort() // /b leaves in the middle
	p.run()
	p.expect(PlacesStatus{Used: 2, Full: 1}, "/a", "/b", "/c", "/e")
	p.answer("/e")
	if got := string(c[4].Take()); !strings.HasSuffix(got, "\r\n\r\nok") {
		t.Errorf("%q", got)
	}
	p.answer("/c")
	p.expect(PlacesStatus{Full: 1}, "/a", "/b", "/c", "/e")
	p.nothingLeft(c...)
}

// TestARequestWaitsForAPlaceNoLongerThanItMay and no place is lost by that.
func TestARequestWaitsForAPlaceNoLongerThanItMay(t *testing.T) {
	p := newPlaced(t, PlacesOptions{Requests: 1, Pending: 9, Wait: 5 * time.Second})
	c := p.askAll("/a", "/b")
	p.pass(4900 * time.Millisecond)
	if got := c[1].Take(); len(got) > 0 {
		t.Errorf("too early: %q", got)
	}
	p.pass(200 * time.Millisecond)
	if got := string(c[1].Take()); !strings.HasPrefix(got, "HTTP/1.1 503 ") {
		t.Errorf("%q", got)
	}
	p.expect(PlacesStatus{Used: 1, Timeouts: 1}, "/a")
	p.answer("/a")
	p.expect(PlacesStatus{Timeouts: 1}, "/a")
	p.nothingLeft(c...)
}

// TestAPlaceForARequestThatLeavesGoesToTheNext also where it was given already, and the command for its loop is under way.
func TestAPlaceForARequestThatLeavesGoesToTheNext(t *testing.T) {
	p := newPlaced(t, PlacesOptions{Requests: 1, Pending: 9, Wait: 5 * time.Second})
	c := p.askAll("/a", "/b", "/c")
	var given *placeWait
	if err := p.loop.Do(func() {
		given = p.places.queue[0]
		p.places.Set(PlacesOptions{Requests: 2, Pending: 9, Wait: 5 * time.Second})
		given.x.frontFailed() // as its client's connection has failed
	}); !err {
		t.Fatal("the loop has ended")
	}
	p.run()
	p.expect(PlacesStatus{Used: 2}, "/a", "/c")
	if given.state != placeLeft {
		t.Errorf("state %d", given.state)
	}
	p.answer("/a")
	p.answer("/c")
	p.expect(PlacesStatus{}, "/a", "/c")
	for _, c := range c {
		c.Close()
	}
}

// TestMorePlacesAreGivenAtOnce where a reload brings them.
func TestMorePlacesAreGivenAtOnce(t *testing.T) {
	p := newPlaced(t, PlacesOptions{Requests: 1, Pending: 9, Wait: time.Minute})
	c := p.askAll("/a", "/b", "/c")
	p.places.Set(PlacesOptions{Requests: 3, Pending: 9, Wait: time.Minute})
	p.run()
	p.expect(PlacesStatus{Used: 3}, "/a", "/b", "/c")
	for _, path := range p.reached {
		p.answer(path)
	}
	p.nothingLeft(c...)
}

// TestContentWaitsWithItsRequest and arrives whole.
func TestContentWaitsWithItsRequest(t *testing.T) {
	p := newPlaced(t, PlacesOptions{Requests: 1, Pending: 9, Wait: time.Minute})
	first := p.askAll("/a")
	held := p.by["/a"]
	rec := &recorder{}
	p.backend = rec.serve
	second := p.connect(memHTTP1)
	second.Write([]byte("POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"))
	p.run()
	if rec.whole() != 0 || p.places.Status().Pending != 1 {
		t.Error("the request did not wait")
	}
	held.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"))
	p.run()
	if got := string(second.Take()); !strings.HasSuffix(got, "\r\n\r\nok") || rec.whole() != 1 {
		t.Errorf("%q; %d requests reached the backend", got, rec.whole())
	}
	p.nothingLeft(append(first, second)...)
}

// commandLoop is a loop that has commands alone.
type commandLoop struct {
	transport.Loop
	commands chan func()
}

func (l commandLoop) Do(f func()) bool { l.commands <- f; return true }

// TestPlacesOfLoopsAreTogether: no place is lost and none is given twice, whatever loops do at the same time.
func TestPlacesOfLoopsAreTogether(t *testing.T) {
	const loops, requests = 4, 2000
	p := NewPlaces(PlacesOptions{Requests: 3, Pending: loops, Wait: time.Minute})
	var inside, most, served atomic.Int64
	done := make(chan struct{})
	leave := func() {
		n := inside.Add(1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		inside.Add(-1)
		served.Add(1)
		p.release()
	}
	for loop := range loops {
		commands := make(chan func(), 1)
		w := &Worker{id: loop}
		w.Loop = commandLoop{commands: commands}
		go func() {
			defer func() { done <- struct{}{} }()
			for range requests {
				if p.waiting.Load() > 0 || !p.take() {
					p.enter(&exchange{w: w}, false)
					<-commands
				}
				leave()
			}
		}()
	}
	for range loops {
		<-done
	}
	if st := p.Status(); st != (PlacesStatus{}) || served.Load() != loops*requests || most.Load() > 3 {
		t.Errorf("%+v, %d served, %d at a time", st, served.Load(), most.Load())
	}
}
