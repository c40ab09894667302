package acme

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/tls"
)

// demandRig is an OnDemand in virtual time, whose orders are the test's.
type demandRig struct {
	*OnDemand
	t      *testing.T
	m      *Manager
	now    time.Time
	orders []string
	order  func(c *managed) error // nil: the order succeeds
	mu     sync.Mutex
}

func newDemandRig(t *testing.T, o DemandOptions) *demandRig {
	t.Helper()
	r := &demandRig{t: t, now: time.Now()}
	r.m = newManager(t, t.TempDir(), "http://192.0.2.1/", &r.now)
	if o.Store = (&tls.Store{}); o.OrdersPerHour == 0 {
		o.OrdersPerHour = 100
	}
	if o.Certificates == 0 {
		o.Certificates = 100
	}
	o.order = func(_ context.Context, c *managed) error {
		r.mu.Lock()
		r.orders = append(r.orders, c.names[0])
		r.mu.Unlock()
		if r.order != nil {
			if err := r.order(c); err != nil {
				return err
			}
		}
		stored(t, r.m, r.now, r.now.Add(100*time.Hour), c.names[0])
		return r.m.restore(c)
	}
	d, err := r.m.NewOnDemand(o)
	if err != nil {
		t.Fatal(err)
	}
	r.OnDemand = d
	r.m.SetOnDemand([]*OnDemand{d})
	t.Cleanup(d.Close)
	return r
}

// want has a handshake ask for a name and waits for the end of its wait. It reports whether it has waited.
func (r *demandRig) want(name string) (waited bool) {
	woken := make(chan struct{})
	if _, waits := r.Want(name, func() { close(woken) }); !waits {
		return false
	}
	select {
	case <-woken:
	case <-time.After(time.Minute):
		r.t.Fatalf("%s: nothing wakes the handshake", name)
	}
	r.work.Wait()
	return true
}

// expect compares the orders so far, and whether there is a certificate for a name.
func (r *demandRig) expect(name string, has bool, orders int) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := r.o.Store.HasName(name); got != has || len(r.orders) != orders {
		r.t.Errorf("%s: certificate: %v, want %v; orders: %q, want %d", name, got, has, r.orders, orders)
	}
}

// asked is a server that permits names as a function has it, and counts the requests.
func asked(t *testing.T, answer func(name string) int) (url string, n *atomic.Int64) {
	n = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		if r.Method != "GET" || r.URL.Path != "/ask" || r.URL.Query().Get("key") != "k" {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		status := answer(r.URL.Query().Get("domain"))
		if status/100 == 3 {
			w.Header().Set("Location", "/yes")
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/ask?key=k", n
}

func TestOnDemandOptions(t *testing.T) {
	now := time.Now()
	m := newManager(t, t.TempDir(), "http://192.0.2.1/", &now)
	for name, o := range map[string]DemandOptions{
		"no store":  {Names: []string{"a.example"}, OrdersPerHour: 1, Certificates: 1},
		"no list":   {Store: &tls.Store{}, OrdersPerHour: 1, Certificates: 1},
		"no orders": {Store: &tls.Store{}, Ask: "http://x/", Certificates: 1},
		"no bound":  {Store: &tls.Store{}, Ask: "http://x/", OrdersPerHour: 1},
	} {
		if _, err := m.NewOnDemand(o); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Names and suffixes permit what they name, and nothing that only looks so.
func TestNamesOnDemand(t *testing.T) {
	r := newDemandRig(t, DemandOptions{Names: []string{"a.example"}, Suffixes: []string{"b.example"}})
	permitted := []string{"a.example", "A.Example.", "x.b.example", "y.x.b.example"}
	for _, name := range permitted {
		if waited := r.want(name); waited != (name != "A.Example.") || !r.o.Store.HasName(name) {
			t.Errorf("%s: waited %v", name, waited)
		}
	}
	for _, name := range []string{
		"", "b.example", "xb.example", ".b.example", "*.b.example", "x..b.example", "-x.b.example", "x_y.b.example", "a.example.org", "c.example", "192.0.2.1", "2001:db8::1",
		"../x.b.example", strings.Repeat("a", 64) + ".b.example", strings.Repeat("a.", 130) + "b.example", "x.b.example\x00", "x/y.b.example",
	} {
		if r.want(name) {
			t.Errorf("%q is permitted", name)
		}
	}
	r.expect("c.example", false, 3)
	if st := r.Stats(); st.Certificates != 3 || st.Obtained != 3 || st.Refused == 0 || st.Waiting != 0 {
		t.Errorf("%+v", st)
	}
}

// With a URL the answer decides, within suffixes if there are some. What is refused is not asked for again for a minute.
func TestAskingOnDemand(t *testing.T) {
	status := map[string]int{"yes.example": 200, "also.example": 204, "no.example": 404, "moved.example": 302, "x.b.example": 200, "broken.example": 500}
	url, n := asked(t, func(name string) int { return status[name] })
	r := newDemandRig(t, DemandOptions{Ask: url, Names: []string{"always.example"}})
	orders := 0
	for _, name := range []string{"yes.example", "also.example", "no.example", "moved.example", "broken.example", "always.example"} {
		good := status[name]/100 == 2 || name == "always.example"
		if good {
			orders++
		}
		r.want(name)
		r.expect(name, good, orders)
	}
	before := n.Load()
	if before != 5 || r.want("no.example") || r.want("broken.example") || n.Load() != before {
		t.Errorf("%d requests, then %d", before, n.Load())
	}
	r.now = r.now.Add(denyErrorTime)
	if !r.want("broken.example") || r.want("no.example") || n.Load() != before+1 {
		t.Errorf("%d requests", n.Load())
	}
	r.now = r.now.Add(denyTime)
	status["no.example"] = 200
	r.want("no.example")
	r.expect("no.example", true, orders+1)
	both := newDemandRig(t, DemandOptions{Ask: url, Suffixes: []string{"b.example"}})
	if both.want("yes.example") || !both.want("x.b.example") {
		t.Error("suffixes and a URL: both have to permit")
	}
	both.expect("x.b.example", true, 1)
}

// Handshakes for one name have one order, and all are woken; one that leaves is not counted.
func TestOneOrderForManyHandshakes(t *testing.T) {
	r := newDemandRig(t, DemandOptions{Names: []string{"a.example"}})
	hold := make(chan struct{})
	r.order = func(*managed) error { <-hold; return nil }
	var woken atomic.Int64
	var leave func()
	for range 10 {
		var waits bool
		if leave, waits = r.Want("a.example", func() { woken.Add(1) }); !waits {
			t.Fatal("it does not wait")
		}
	}
	leave()
	leave()
	if n := r.Stats().Waiting; n != 9 {
		t.Errorf("%d wait", n)
	}
	close(hold)
	r.work.Wait()
	if r.expect("a.example", true, 1); woken.Load() != 9 || r.Stats().Waiting != 0 {
		t.Errorf("%d are woken, %d wait", woken.Load(), r.Stats().Waiting)
	}
	leave()
}

// A flood of names has a bounded number of requests, orders, waiting handshakes and remembered names, and a name that is permitted gets its
// certificate once it is over.
func TestAFloodOfNames(t *testing.T) {
	url, n := asked(t, func(name string) int {
		if strings.HasPrefix(name, "good") {
			return 200
		}
		return 404
	})
	r := newDemandRig(t, DemandOptions{Ask: url, Suffixes: []string{"b.example"}})
	for i := range 3000 {
		r.want(fmt.Sprintf("flood%d.b.example", i))
		r.want(fmt.Sprintf("flood%d.other.example", i))
	}
	if n.Load() != asksBurst || r.denied.Len() > demandDenied || r.Stats().Waiting != 0 {
		t.Errorf("%d requests, %d names", n.Load(), r.denied.Len())
	}
	r.now = r.now.Add(time.Second)
	if r.want("good.b.example"); n.Load() != asksBurst+1 {
		t.Errorf("%d requests", n.Load())
	}
	r.expect("good.b.example", true, 1)
	if a := testing.AllocsPerRun(100, func() { r.Want("flood1.other.example", nil) }); a > 0 {
		t.Errorf("a name that is not permitted allocates %v times", a)
	}
	hold := make(chan struct{})
	r = newDemandRig(t, DemandOptions{Suffixes: []string{"b.example"}})
	begun := make(chan struct{}, 100)
	r.order = func(*managed) error { begun <- struct{}{}; <-hold; return nil }
	r.Want("first.b.example", func() {})
	<-begun
	for i := range 2 * demandFlights {
		r.Want(fmt.Sprintf("%d.b.example", i), func() {})
	}
	r.OnDemand.mu.Lock()
	if n := len(r.flights); n > demandFlights {
		t.Errorf("%d names at a time", n)
	}
	r.OnDemand.mu.Unlock()
	for range 2 * demandWaiters {
		r.Want("first.b.example", func() {})
	}
	if n := r.Stats().Waiting; n < demandWaiters-demandFlights || n > demandWaiters {
		t.Errorf("%d wait", n)
	}
	close(hold)
	r.work.Wait()
}

// Orders are bounded by the hour, and certificates by number. Each bound is reported once a minute.
func TestOrdersOnDemandAreBounded(t *testing.T) {
	r := newDemandRig(t, DemandOptions{Suffixes: []string{"b.example"}, OrdersPerHour: 20, Certificates: 7})
	var events []Event
	r.m.o.Report = func(e Event) { events = append(events, e) }
	for i := range 50 {
		r.want(fmt.Sprintf("%d.b.example", i))
	}
	r.expect("b.example", false, ordersBurst)
	if len(events) != 1 || !errors.Is(events[0].Err, ErrLimited) {
		t.Errorf("%+v", events)
	}
	r.now = r.now.Add(3 * time.Minute)
	r.want("x.b.example")
	r.want("y.b.example")
	r.expect("x.b.example", true, ordersBurst+1)
	r.now = r.now.Add(time.Hour)
	for i := range 50 {
		r.want(fmt.Sprintf("z%d.b.example", i))
	}
	if r.expect("z0.b.example", true, 7); r.Stats().Limited == 0 {
		t.Errorf("%+v", r.Stats())
	}
}

// Names that the options have get their certificates whatever other names clients ask for: a part of the orders and of the certificates
// is theirs, and work for others does not keep them waiting.
func TestNamesHaveAReserve(t *testing.T) {
	r := newDemandRig(t, DemandOptions{Names: []string{"a.example", "c.example"}, Suffixes: []string{"b.example"}, OrdersPerHour: 20, Certificates: 6})
	for i := range 20 {
		r.want(fmt.Sprintf("%d.b.example", i))
	}
	r.expect("a.example", false, ordersBurst-ordersReserve)
	r.want("a.example")
	r.want("c.example")
	r.expect("a.example", true, ordersBurst)
	r.expect("c.example", true, ordersBurst)
	r.now = r.now.Add(time.Hour)
	for i := range 20 {
		r.want(fmt.Sprintf("y%d.b.example", i))
	}
	r.expect("y0.b.example", true, 6) // nothing is kept any more

	full := newDemandRig(t, DemandOptions{Names: []string{"a.example"}, Suffixes: []string{"b.example"}, OrdersPerHour: 1000, Certificates: 3})
	for i := range 3 {
		full.want(fmt.Sprintf("%d.b.example", i))
	}
	full.expect("2.b.example", false, 2)
	full.want("a.example")
	full.expect("a.example", true, 3)

	hold := make(chan struct{})
	busy := newDemandRig(t, DemandOptions{Names: []string{"a.example"}, Suffixes: []string{"b.example"}, OrdersPerHour: 1000, Certificates: 100})
	busy.OnDemand.o.order = func(context.Context, *managed) error { <-hold; return errors.New("no") }
	wake := func() {}
	for i := range 2 * demandFlights {
		busy.Want(fmt.Sprintf("%d.b.example", i), wake)
	}
	if _, waits := busy.Want("a.example", wake); !waits {
		t.Error("names of others keep a listed one from its order")
	}
	close(hold)
}

// What is reported of a URL that asks has none of its parameters and no password.
func TestSecretsOfTheURLAreNotReported(t *testing.T) {
	for name, c := range map[string]struct {
		answer int
		broken bool
	}{"an error": {answer: 500}, "no server": {broken: true}} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(c.answer) }))
		ask := strings.Replace(s.URL, "//", "//user:hidden@", 1) + "/ask?token=hidden"
		if c.broken {
			s.Close()
		} else {
			t.Cleanup(s.Close)
		}
		r := newDemandRig(t, DemandOptions{Ask: ask})
		var events []Event
		r.m.o.Report = func(e Event) { events = append(events, e) }
		r.want("a.example")
		if len(events) != 1 || !errors.Is(events[0].Err, ErrAsk) || strings.Contains(events[0].Err.Error(), "hidden") || !strings.Contains(events[0].Err.Error(), "/ask") {
			t.Errorf("%s: %+v", name, events)
		}
	}
}

// An order that fails is not repeated for a time, and handshakes go on without a certificate.
func TestOrdersThatFail(t *testing.T) {
	r := newDemandRig(t, DemandOptions{Names: []string{"a.example"}})
	r.order = func(*managed) error { return errors.New("no") }
	if !r.want("a.example") || r.want("a.example") {
		t.Error("it is repeated at once")
	}
	r.expect("a.example", false, 1)
	r.order = nil
	r.now = r.now.Add(denyTime)
	r.want("a.example")
	if r.expect("a.example", true, 2); r.Stats().Failed != 1 {
		t.Errorf("%+v", r.Stats())
	}
}

// A certificate of the folder is used without an order, if it is still permitted, and a stored one that has expired is not.
func TestStoredCertificatesOnDemand(t *testing.T) {
	var status atomic.Int64
	status.Store(200)
	url, _ := asked(t, func(string) int { return int(status.Load()) })
	r := newDemandRig(t, DemandOptions{Ask: url, OrdersPerHour: 1})
	stored(t, r.m, r.now, r.now.Add(100*time.Hour), "a.example")
	stored(t, r.m, r.now, r.now.Add(100*time.Hour), "b.example")
	stored(t, r.m, r.now.Add(-200*time.Hour), r.now.Add(-100*time.Hour), "old.example")
	r.want("a.example")
	r.expect("a.example", true, 0)
	status.Store(403)
	r.want("b.example")
	r.expect("b.example", false, 0)
	status.Store(200)
	r.want("old.example")
	r.expect("old.example", true, 1)
}

// Those on demand are renewed like others, as long as they are permitted.
func TestRenewalOnDemand(t *testing.T) {
	var status atomic.Int64
	status.Store(200)
	url, _ := asked(t, func(string) int { return int(status.Load()) })
	directory, requests := refusing(t)
	r := newDemandRig(t, DemandOptions{Ask: url})
	r.m.o.Directory, r.m.client.Directory = directory, directory
	var events []Event
	r.m.o.Report = func(e Event) { events = append(events, e) }
	r.want("a.example")
	if all := r.m.Status(); len(all) != 1 || all[0].Names[0] != "a.example" {
		t.Errorf("%+v", all)
	}
	r.now = r.now.Add(70 * time.Hour)
	status.Store(404)
	r.m.Renew(t.Context())
	if len(events) != 1 || !errors.Is(events[0].Err, ErrNotPermitted) || !events[0].Renewal {
		t.Errorf("%+v", events)
	}
	status.Store(200)
	before := requests()
	r.now = r.now.Add(2 * time.Minute)
	r.m.Renew(t.Context())
	if len(events) != 2 || errors.Is(events[1].Err, ErrNotPermitted) || requests() == before {
		t.Errorf("%+v", events)
	}
	r.m.SetOnDemand(nil)
	if len(r.m.Status()) != 0 {
		t.Error("one whose listener is gone is renewed")
	}
}

// The end of an OnDemand wakes what waits.
func TestTheEndOfAnOnDemand(t *testing.T) {
	r := newDemandRig(t, DemandOptions{Names: []string{"a.example"}})
	r.order = func(*managed) error { <-r.ctx.Done(); return r.ctx.Err() }
	woken := make(chan struct{})
	if _, waits := r.Want("a.example", func() { close(woken) }); !waits {
		t.Fatal("it does not wait")
	}
	r.Close()
	<-woken
	if _, waits := r.Want("a.example", nil); waits {
		t.Error("after its end it waits")
	}
	if entries, _ := os.ReadDir(r.m.o.Dir); len(entries) == 0 {
		t.Error("the folder is gone")
	}
}
