package control

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/packet"
)

// anyHop leads to every address by port 1.
type anyHop struct{ nexthop.Static }

func (anyHop) Watch(addrs []netip.Addr, changed func(netip.Addr, nexthop.Hop)) {
	for _, a := range addrs {
		changed(a, nexthop.Hop{MAC: macBackend, Dev: 1, State: nexthop.Ready})
	}
}

// withFleet returns a configuration whose first service has n backends from number first on, each with another name and
// address.
func withFleet(base *config.Config, first, n int) *config.Config {
	c := *base
	c.Services = slices.Clone(base.Services)
	one := base.Services[0].Backends[0]
	c.Services[0].Backends = nil
	for i := first; i < first+n; i++ {
		b := one
		b.Name = fmt.Sprintf("b%d", i)
		port := uint16(8000 + i>>16)
		b.Addresses = []config.AddrPorts{config.AddrPortsFrom(netip.AddrFrom4([4]byte{198, 19, byte(i >> 8), byte(i)}), config.PortRange{First: port, Last: port})}
		c.Services[0].Backends = append(c.Services[0].Backends, b)
	}
	return &c
}

// looks lets the loops look at their tables, and the gateway release what they do not hold.
func (w *world) looks() {
	for range 2 {
		for _, h := range w.g.Handlers() {
			h.Tick(w.now) // ends the pass under way
			h.Tick(w.now)
		}
		w.g.mu.Lock()
		w.g.release()
		w.g.mu.Unlock()
	}
}

// places returns how many places the gateway has for VIPs, services, backends, endpoints and SNAT addresses, and checks
// that the registry agrees with the snapshot.
func (w *world) places() [5]int {
	w.t.Helper()
	s, r := w.g.snap.Load(), w.g.reg
	got := [5]int{len(s.VIPs), len(s.Services), len(s.Backends), len(s.Endpoints), int(r.snats.next) - 1}
	want := [5]int{int(r.vips.next), int(r.services.next), int(r.backends.next), int(r.endpoints.next), int(r.snats.next) - 1}
	used := [5]int{
		len(r.vips.of) + len(r.vips.free), len(r.services.of) + len(r.services.free), len(r.backends.of) + len(r.backends.free),
		len(r.endpoints.of) + len(r.endpoints.free), len(r.snats.of) + len(r.snats.free),
	}
	if got != want || used != want {
		w.t.Fatalf("places %v, numbers %v, used and free %v", got, want, used)
	}
	for name, n := range r.backends.of {
		if b := s.Backends[n]; b.Free() || b.Name != name.name || s.Services[b.Service].Name != name.service {
			w.t.Fatalf("backend %v has the place of %q of %q", name, b.Name, s.Services[b.Service].Name)
		}
	}
	return got
}

// TestBackendsThatAreGoneCostNothing replaces all backends again and again, as services that scale by themselves do.
// Connections of some that are gone go on all the time.
func TestBackendsThatAreGoneCostNothing(t *testing.T) {
	const fleets, each = 10_000, 10
	base := parse(t, withBackends("keep", 11))
	w := newWorldWith(t, withFleet(base, 0, each), anyHop{})
	held, before := map[string]string{}, uint64(0)
	goOn := func() {
		t.Helper()
		for src, backend := range held {
			out := w.expect(0, client(src, web, "A").bytes(), 1)
			if got := flowOf(out).dst.String(); got != backend {
				t.Fatalf("%s moved from %s to %s", src, backend, got)
			}
			if back := flowOf(w.expect(1, answer(out, "A").bytes(), 0)); back.dst.String() != src || back.src.String() != web {
				t.Fatalf("an answer of %s went from %v to %v", backend, back.src, back.dst)
			}
		}
	}
	for i := range fleets {
		if err := w.g.Reload(withFleet(base, i*each, each)); err != nil {
			t.Fatal(err)
		}
		w.events = nil
		switch {
		case i == 100 || i == 5000:
			for k := range 5 {
				src := fmt.Sprintf("198.18.0.9:%d", i+k)
				held[src] = flowOf(w.connect(src)).dst.String()
			}
		case i%500 == 0:
			goOn()
		default: // and some that do not last
			w.send(0, client(fmt.Sprintf("198.18.0.10:%d", 1024+i), web, "S").bytes())
		}
		w.now = w.now.Add(time.Second)
		w.h.Tick(w.now)
		w.h.Tick(w.now)
		if i == 200 {
			before = heap()
		}
	}
	goOn()
	grown := int64(heap()-before) >> 20
	if n := w.places(); n[2] > 40*each || n[3] > 100*each || grown > 8 {
		t.Errorf("%v places of %d backends, the heap grew by %d MB", n, fleets*each, grown)
	}
	if n := len(w.g.hops); n > 200*each {
		t.Errorf("%d next hops", n)
	}
	w.audit()
	w.after(3 * time.Hour) // the connections end
	w.looks()
	w.after(2 * time.Minute)
	w.looks()
	if n, r := w.places(), w.g.reg; len(r.backends.of) != each || len(r.endpoints.of) != each || len(r.byAddr) != each {
		t.Errorf("%v places, %d backends and %d endpoints have numbers", n, len(r.backends.of), len(r.endpoints.of))
	}
	runtime.KeepAlive(w)
}

// numberOf returns the number of a backend.
func (w *world) numberOf(name string) uint32 {
	w.t.Helper()
	for b, n := range w.g.reg.backends.of {
		if b.name == name {
			return n
		}
	}
	w.t.Fatalf("%s has no number", name)
	return 0
}

// A number that is given again has no counters, no health and no series of what had it before.
func TestANumberIsGivenAgainAsNew(t *testing.T) {
	w := newWorld(t, withBackends("keep", 11, 12), withBackends("keep", 12, 13))
	w.open(50)
	w.setHealth("b11", false)
	w.g.mu.Lock()
	was := w.numberOf("b11")
	w.g.ejected[was] = &ejection{}
	w.g.mu.Unlock()
	w.reload(withBackends("keep", 12))
	w.looks()
	if n := w.numberOf("b11"); n != was {
		t.Fatal("a backend with connections lost its number")
	}
	if !strings.Contains(w.scrape(), `backend="b11"`) {
		t.Error("a removed backend with connections has no series")
	}
	w.after(3 * time.Hour)
	w.after(2 * time.Minute) // its ports rest
	w.looks()
	if strings.Contains(w.scrape(), `backend="b11"`) {
		t.Error("a backend that is gone has series")
	}
	w.h.Tick(w.now) // sees the number free
	w.reload(withBackends("keep", 12, 13))
	if n := w.numberOf("b13"); n != was {
		t.Fatalf("b13 has number %d, want %d again", n, was)
	}
	for _, b := range w.g.Status().Services[0].Backends {
		if b.Name == "b13" && (b.Opened != 0 || b.ToPackets != 0 || !b.Healthy || b.Ejected || b.State != config.StateActive) {
			t.Errorf("%+v", b)
		}
	}
	for i := range 50 { // and its counters are its own
		w.connect(fmt.Sprintf("198.18.0.10:%d", 2000+i))
	}
	var opened uint64
	for _, b := range w.g.Status().Services[0].Backends {
		if b.Name == "b13" {
			opened = b.Opened
		}
	}
	s := w.g.snap.Load()
	if opened == 0 || opened == 50 || s.Backends[was].Flows() != opened {
		t.Errorf("b13 has opened %d connections of 50, and has %d", opened, s.Backends[was].Flows())
	}
	w.audit()
}

// What comes back before its number is released is what it was.
func TestABackendThatComesBackKeepsItsNumber(t *testing.T) {
	w := newWorld(t, withBackends("keep", 11, 12, 13))
	w.open(50)
	was, opened := w.numberOf("b11"), w.g.Status().Services[0].Backends[0].Opened
	w.reload(withBackends("keep", 12))
	w.after(3 * time.Hour) // no connection is left
	w.h.Tick(w.now)
	w.g.mu.Lock()
	w.g.release()
	w.g.mu.Unlock()
	w.h.Tick(w.now)
	w.reload(withBackends("keep", 11, 12)) // and b13 is still gone
	w.looks()
	w.looks()
	w.looks()
	if n := w.numberOf("b11"); n != was || w.g.Status().Services[0].Backends[0].Opened < opened {
		t.Errorf("number %d became %d", was, n)
	}
	if w.g.snap.Load().Retired != nil {
		t.Error("numbers are retired though all are in use")
	}
	w.open(50)
}

// Service addresses, services and SNAT addresses are given again as well.
func TestNumbersOfServicesAreGivenAgain(t *testing.T) {
	config := func(i int) string {
		s := strings.ReplaceAll(withBackends("keep", 11), "name: web", fmt.Sprintf("name: web%d", i))
		s = strings.ReplaceAll(s, "198.18.1.1:80", fmt.Sprintf("198.18.1.%d:80", 1+i))
		return strings.ReplaceAll(s, "snat: [198.18.2.1]", fmt.Sprintf("snat: [198.18.3.%d]", 1+i))
	}
	w := newWorld(t, config(0))
	for i := 1; i < 50; i++ {
		src, vip := fmt.Sprintf("198.18.0.9:%d", 1000+i), fmt.Sprintf("198.18.1.%d:80", i)
		out := w.expect(0, client(src, vip, "S").bytes(), 1)
		w.reload(config(i))
		for range 3 {
			w.looks()
		}
		// The connection goes on, by its numbers.
		if back := flowOf(w.expect(1, answer(out, "SA").bytes(), 0)); back.dst.String() != src || back.src.String() != vip {
			t.Fatalf("an answer went from %v to %v", back.src, back.dst)
		}
		w.after(3 * time.Hour)
		w.after(2 * time.Minute)
		for range 3 {
			w.looks()
		}
	}
	if n := w.places(); slices.Max(n[:]) > 3 {
		t.Errorf("%v places", n)
	}
	if list := w.g.Steering(); len(list) > 40 {
		t.Errorf("%d rules of steering", len(list))
	}
}

// While other connections go on, what is free has no rule of steering, and a backend with connections is not retired.
func TestOnlyWhatHasEndedIsRetired(t *testing.T) {
	w := newWorld(t, withBackends("keep", 11, 12))
	w.open(50)
	moved := strings.Replace(withBackends("keep", 12), "198.18.1.1:80", "198.18.1.9:80", 1)
	was := w.numberOf("b11")
	w.reload(moved)
	if r := w.g.snap.Load().Retired; r == nil || r.Backends.Has(was) {
		t.Errorf("retired %+v: want the service address, and not backend %d, which has connections", r, was)
	}
	w.after(3 * time.Hour)
	w.after(2 * time.Minute)
	for range 3 {
		w.looks()
	}
	if v := w.g.snap.Load().VIPs; !slices.ContainsFunc(v, func(v datapath.VIP) bool { return v.Free() }) {
		t.Fatal("no service address is free")
	}
	w.expect(0, client("198.18.0.9:1000", "198.18.1.9:80", "S").bytes(), 1)
	for _, r := range w.g.Steering() {
		if !r.Addr.IsValid() || r.Proto == 0 || r.Addr.IsUnspecified() {
			t.Errorf("a rule of steering for what is free: %+v", r)
		}
	}
}

// A number is in use until every loop has looked: one that is busy, or has not taken the snapshot, may hold it.
func TestANumberWaitsForAllLoops(t *testing.T) {
	const n = 3
	two := withLoops("", n)
	less := strings.Replace(two, `      - {name: b2, address: [198.18.2.12:8080, "[2001:db8:2::12]:8080"]}`+"\n", "", 1)
	w := newWorld(t, two)
	was := w.numberOf("b2")
	w.reload(less)
	for i, h := range w.g.Handlers() {
		w.g.mu.Lock()
		w.g.release()
		w.g.mu.Unlock()
		if w.g.snap.Load().Backends[was].Free() {
			t.Fatalf("released after %d loops", i)
		}
		for range 4 {
			h.Tick(w.now)
		}
	}
	w.g.mu.Lock()
	w.g.release()
	w.g.mu.Unlock()
	if !w.g.snap.Load().Backends[was].Free() {
		t.Error("not released after all loops")
	}
}

// Connections that open between the steps of a pass do not take the place of those that were there before.
func TestAPassLooksAtAllConnectionsThoughOthersOpen(t *testing.T) {
	w := newWorld(t, withBackends("keep", 11, 12))
	port := 1000
	open := func(backend string) {
		t.Helper()
		for end := port + 100; port < end; {
			port++
			out := w.expect(0, client(fmt.Sprintf("198.18.0.9:%d", port), web, "S").bytes(), 1)
			if flowOf(out).dst.String() == backend+":80" {
				return
			}
			w.send(1, answer(out, "RA").bytes()) // half-open: forgotten at once
		}
		t.Fatalf("none of 100 connections goes to %s", backend)
	}
	open("198.18.2.11")
	n, retired := w.numberOf("b11"), &datapath.Numbers{}
	retired.Backends.Add(n)
	w.g.mu.Lock()
	s := *w.g.snap.Load()
	s.Retired = retired
	w.g.snap.Store(&s)
	w.g.mu.Unlock()
	for range 3 {
		w.h.Tick(w.now)
		open("198.18.2.12")
	}
	if held, ok := w.h.Holds(retired); !ok || !held.Backends.Has(n) {
		t.Errorf("reported %v: %+v", ok, held)
	}
}

// A loop reports what its connections refer to, and the endpoints and SNAT addresses of ports that rest: a backend may be in
// TIME-WAIT there.
func TestALoopReportsWhatItHolds(t *testing.T) {
	w := newWorld(t, strings.Replace(withBackends("keep", 11, 12), "table: {size: 1024}", "table: {size: 1024, tcp: {fin: 5s}}", 1))
	holds := func() *datapath.Numbers {
		t.Helper()
		all := &datapath.Numbers{}
		for n := range uint32(4) {
			all.VIPs.Add(n)
			all.Backends.Add(n)
			all.Endpoints.Add(n)
			all.SNATs.Add(n)
		}
		w.g.mu.Lock()
		s := *w.g.snap.Load()
		s.Retired = all
		w.g.snap.Store(&s)
		w.g.mu.Unlock()
		if _, ok := w.h.Holds(all); ok {
			t.Fatal("reported before it has looked")
		}
		w.h.Tick(w.now)
		w.h.Tick(w.now)
		held, ok := w.h.Holds(all)
		if !ok {
			t.Fatal("no report")
		}
		return held
	}
	numbers := func(vip, backend, endpoint, snat bool) *datapath.Numbers {
		x, s := &datapath.Numbers{}, w.g.snap.Load()
		n := w.numberOf("b11")
		for _, c := range []struct {
			is bool
			of *datapath.NumberSet
			n  uint32
		}{{vip, &x.VIPs, 0}, {backend, &x.Backends, n}, {endpoint, &x.Endpoints, s.Backends[n].Endpoint}, {snat, &x.SNATs, 1}} {
			if c.is {
				c.of.Add(c.n)
			}
		}
		return x
	}
	var out []byte
	var src string
	for i := 0; out == nil || flowOf(out).dst.String() != "198.18.2.11:80"; i++ {
		if out != nil {
			w.send(1, answer(out, "RA").bytes()) // half-open: forgotten at once
		}
		src = fmt.Sprintf("198.18.0.9:%d", 1000+i)
		out = w.expect(0, client(src, web, "S").bytes(), 1)
	}
	if held := holds(); !held.Equal(numbers(true, true, true, true)) {
		t.Errorf("with a connection: %+v", held)
	}
	w.expect(1, answer(out, "SA").bytes(), 0)
	w.expect(0, client(src, web, "A").bytes(), 1)
	w.expect(1, answer(out, "FA").bytes(), 0) // the backend closes first
	c := client(src, web, "FA")
	c.seq, c.ack, c.payload = firstSeq+uint32(len(c.payload)), firstSeq+uint32(len("from the backend"))+1, ""
	w.expect(0, c.bytes(), 1)
	last := answer(out, "A")
	last.seq, last.ack, last.payload = c.ack, c.seq+1, ""
	w.expect(1, last.bytes(), 0)
	w.after(20 * time.Second)
	if n := w.h.Connections(); n != 0 {
		t.Fatalf("%d connections", n)
	}
	if held := holds(); !held.Equal(numbers(false, false, true, true)) {
		t.Errorf("while its port rests: %+v", held)
	}
	w.after(time.Minute)
	if held := holds(); !held.Empty() {
		t.Errorf("in the end: %+v", held)
	}
}

// A report of earlier numbers says nothing of later ones.
func TestAnOldReportIsNotForNewNumbers(t *testing.T) {
	two := strings.Replace(withBackends("keep", 11), "address: 198.18.1.1:80", "address: [198.18.1.1:80, 198.18.1.2:80, 198.18.1.3:80]", 1)
	w := newWorld(t, two)
	w.reload(strings.Replace(two, ", 198.18.1.3:80", "", 1))
	w.looks()
	const src = "198.18.0.9:1000"
	out := w.expect(0, client(src, "198.18.1.2:80", "S").bytes(), 1)
	w.reload(withBackends("keep", 11))
	for range 3 { // and the loop has no time to look
		w.g.mu.Lock()
		w.g.release()
		w.g.mu.Unlock()
	}
	if back := flowOf(w.expect(1, answer(out, "SA").bytes(), 0)); back.src.String() != "198.18.1.2:80" {
		t.Errorf("an answer came from %v", back.src)
	}
}

// The outlier detector does not take the counts of a backend for those of the one that has its number next.
func TestTheOutlierDetectorForgetsNumbers(t *testing.T) {
	with := func(hosts ...int) string {
		return strings.Replace(withBackends("keep", hosts...), "removed:", "passive: {failures: 3, window: 2s}\n    removed:", 1)
	}
	w := newWorld(t, with(11, 12), with(12, 13))
	evaluate := func() {
		w.g.mu.Lock()
		defer w.g.mu.Unlock()
		w.g.evaluateOutliers(w.now)
	}
	for i := range 40 {
		w.send(1, answer(w.expect(0, client(fmt.Sprintf("198.18.0.9:%d", 1000+i), web, "S").bytes(), 1), "RA").bytes())
	}
	was := w.numberOf("b11")
	evaluate()
	w.now = w.now.Add(1900 * time.Millisecond) // without an answer for nearly the window
	evaluate()
	w.reload(with(12))
	for range 3 {
		w.looks()
	}
	w.reload(with(12, 13))
	if w.numberOf("b13") != was {
		t.Fatalf("b13 has number %d, want %d; %+v", w.numberOf("b13"), was, w.g.Status().Services[0].Backends)
	}
	w.events = nil
	for range 5 {
		w.now = w.now.Add(150 * time.Millisecond)
		evaluate()
	}
	for _, b := range w.g.Status().Services[0].Backends {
		if b.Ejected {
			t.Errorf("%s is ejected: %+v", b.Name, b.Down)
		}
	}
}

// Copies of connections that are read late say nothing, where their numbers have become those of others.
func TestOldCopiesOfConnectionsMeanNothing(t *testing.T) {
	a, b := syncedPair(t, "")
	all := fill("")
	less := strings.Replace(all, `      - {name: b2, address: [198.18.2.12:8080, "[2001:db8:2::12]:8080"]}`+"\n", "", 1)
	other := strings.Replace(all, "2.12:8080", "2.13:8080", 1)
	other = strings.Replace(strings.Replace(other, "2::12]", "2::13]", 1), "name: b2", "name: b3", 1)
	reload := func(w *world, src string) {
		t.Helper()
		c := parse(t, src)
		c.Sync = w.g.cfg.Sync
		if err := w.g.Reload(c); err != nil {
			t.Fatal(err)
		}
	}
	var old []datapath.ConnCopy
	for i := range 40 { // their changes wait in the ring
		a.connect(fmt.Sprintf("198.18.0.9:%d", 1000+i))
	}
	old, _, _ = a.h.Conns(nil, 0)
	to := netip.MustParseAddrPort("198.18.2.12:8080")
	var records []datapath.Record
	for i := range old {
		if r, ok := a.g.snap.Load().Record(&old[i], a.now); ok && r.Target == to {
			records = append(records, r)
		}
	}
	if len(records) == 0 || len(records) == len(old) {
		t.Fatalf("%d of %d connections lead to b2", len(records), len(old))
	}
	directory := datapath.NewDirectory(b.g.snap.Load(), 1, datapath.PortRange(b.g.ports))
	var forB []datapath.ConnCopy
	for i := range records {
		if c, _, ok := directory.Conn(&records[i]); ok {
			forB = append(forB, c)
		}
	}
	for _, w := range []*world{a, b} {
		was := w.numberOf("b2")
		reload(w, less)
		w.after(3 * time.Hour)
		w.after(2 * time.Minute)
		for range 3 {
			w.looks()
		}
		if !w.g.snap.Load().Backends[was].Free() {
			t.Fatal("b2 has its number still")
		}
		reload(w, other)
		if n := w.g.snap.Load().Backends[was]; n.Name != "b3" {
			t.Fatalf("the number of b2 is that of %q", n.Name)
		}
	}
	s := a.g.snap.Load()
	for i := range old {
		if info, ok := s.Describe(&old[i], a.now); ok && info.Target.Addr() == netip.MustParseAddr("198.18.2.13") {
			t.Fatal("a connection of b2 is shown as one of b3")
		}
	}
	a.g.synced.Changes(func(r *datapath.Record) bool {
		if r.Target.Addr() == to.Addr() || r.Target.Addr() == netip.MustParseAddr("198.18.2.13") {
			t.Errorf("the peer is told of %+v", *r)
		}
		return true
	})
	var outcomes [datapath.RecordOutcomes]uint64
	b.h.Import(b.now, forB, &outcomes)
	if int(outcomes[datapath.RecordUnknown]) != len(forB) || b.h.Connections() != 0 || len(forB) != len(records) {
		t.Errorf("of %d old connections: %v", len(forB), outcomes)
	}
}

// A peer's connection to a backend that is about to be released is not entered: its number may be given away next.
func TestNoConnectionIsImportedForARetiredNumber(t *testing.T) {
	a, b := syncedPair(t, "")
	all := fill("")
	less := strings.Replace(all, `      - {name: b2, address: [198.18.2.12:8080, "[2001:db8:2::12]:8080"]}`+"\n", "", 1)
	for i := range 40 {
		a.connect(fmt.Sprintf("198.18.0.9:%d", 1000+i))
	}
	c := parse(t, less)
	c.Sync = b.g.cfg.Sync
	if err := b.g.Reload(c); err != nil {
		t.Fatal(err)
	}
	n := a.changesTo(b)
	for i, bk := range b.g.snap.Load().Backends {
		if bk.Name == "b2" && bk.Flows() != 0 {
			t.Errorf("backend %d has %d connections", i, bk.Flows())
		}
	}
	if got := b.h.Connections(); got == 0 || int(got) >= n {
		t.Errorf("%d of %d connections entered", got, n)
	}
}

// A backend that has another name now has another number, which may be lower where it was given before. A peer's connection
// to the address is one of the backend of the configuration, not of the one that is about to be released.
func TestAPeersConnectionGoesToTheBackendOfTheConfiguration(t *testing.T) {
	a, b := syncedPair(t, "")
	const b1 = `      - {name: b1, address: [198.18.2.11:8080, "[2001:db8:2::11]:8080"]}` + "\n"
	reload := func(w *world, src string) {
		t.Helper()
		c := parse(t, src)
		c.Sync = w.g.cfg.Sync
		if err := w.g.Reload(c); err != nil {
			t.Fatal(err)
		}
	}
	second := strings.Replace(fill(""), b1, "", 1)
	reload(a, second)
	reload(b, second)
	for range 3 {
		b.looks()
	}
	reload(b, strings.Replace(second, "name: b2", "name: b3", 1))
	if b.numberOf("b3") > b.numberOf("b2") {
		t.Fatalf("b3 has number %d, b2 %d", b.numberOf("b3"), b.numberOf("b2"))
	}
	for i := range 10 {
		a.connect(fmt.Sprintf("198.18.0.9:%d", 1000+i))
	}
	a.changesTo(b)
	for _, bk := range b.g.snap.Load().Backends {
		if n := bk.Flows(); bk.Name == "b2" && n != 0 {
			t.Errorf("%d connections of b2", n)
		}
	}
	if n := b.h.Connections(); n != 10 {
		t.Errorf("%d of 10 connections entered", n)
	}
}

// A pass that a new set of numbers has made void reports nothing, and the loop's sweep goes on.
func TestAPassIsForOneSetOfNumbers(t *testing.T) {
	w := newWorld(t, withBackends("keep", 11, 12, 13))
	was := w.numberOf("b12")
	w.reload(withBackends("keep", 11, 13))
	w.h.Tick(w.now) // begins a pass
	w.reload(withBackends("keep", 11, 12, 13))
	out := w.connect("198.18.0.9:77")
	for i := 0; flowOf(out).dst.String() != "198.18.2.12:80"; i++ {
		out = w.connect(fmt.Sprintf("198.18.0.9:%d", 100+i))
	}
	w.reload(withBackends("keep", 11, 13))
	for range 4 {
		w.looks()
	}
	if w.g.snap.Load().Backends[was].Name != "b12" {
		t.Error("the number was released under a connection")
	}
	if s := w.send(1, answer(out, "SA").bytes()); s.verdict != packet.Forward {
		t.Errorf("verdict %v", s.verdict)
	}
}
