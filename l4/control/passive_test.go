package control

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

const passive = "    passive: {failures: 3, window: 4s, down: 10s}\n"

// newJudged is a world whose gateway is judged only by attempts, in virtual time.
func newJudged(t *testing.T, src string, more ...string) *world {
	t.Helper()
	w := newWorld(t, src, more...)
	w.g.stop()
	w.g.watched.Wait()
	w.judge()
	return w
}

// judge judges now.
func (w *world) judge() {
	w.after(0) // publishes what was counted
	w.g.mu.Lock()
	defer w.g.mu.Unlock()
	w.g.evaluateOutliers(w.now)
}

// attempts makes one connection a second for some seconds. dead names the backend that does not
// serve, and how it shows.
func (w *world) attempts(seconds int, dead, how string) (reached map[string]int) {
	w.t.Helper()
	reached = map[string]int{}
	for i := range seconds * 8 {
		src := fmt.Sprintf("198.18.0.77:%d", 2000+i)
		out := w.expect(0, client(src, web, "S").bytes(), 1)
		to := flowOf(out).dst.String()
		reached[to]++
		switch {
		case to != dead:
			w.expect(1, answer(out, "SA").bytes(), 0)
			w.expect(0, client(src, web, "A").bytes(), 1)
			w.expect(0, client(src, web, "R").bytes(), 1)
		case how == "refused":
			w.expect(1, answer(out, "RA").bytes(), 0)
		}
		w.after(time.Second / 8)
		if i%8 == 7 {
			w.judge()
		}
	}
	return reached
}

// status returns the state of a backend of the first service.
func (w *world) status(name string) BackendStatus {
	w.t.Helper()
	for _, b := range w.g.Status().Services[0].Backends {
		if b.Name == name {
			return b
		}
	}
	w.t.Fatalf("no backend %s", name)
	return BackendStatus{}
}

const dead = "198.18.2.11:80"

func TestABackendThatRefusesConnectionsIsEjectedAndReturns(t *testing.T) {
	w := newJudged(t, withBackends("keep", 11, 12)+passive)
	was := w.open(50) // before it began
	w.attempts(6, dead, "refused")
	st := w.status("b11")
	if !st.Healthy || !st.Ejected || len(st.Down) != 1 || st.Down[0].By != "passive" || st.Down[0].Until == nil ||
		!strings.HasPrefix(st.Down[0].Cause, "clients are not served: no answer, ") {
		t.Fatalf("%+v", st)
	}
	if n := w.attempts(3, "", ""); n[dead] != 0 || n["198.18.2.12:80"] == 0 {
		t.Errorf("new connections while it is ejected: %v", n)
	}
	for src, backend := range was {
		if got := flowOf(w.expect(0, client(src, web, "A").bytes(), 1)).dst.String(); got != backend {
			t.Fatalf("%s moved from %s to %s", src, backend, got)
		}
	}
	w.attempts(10, "", "")
	if st = w.status("b11"); st.Ejected || len(st.Down) != 0 {
		t.Errorf("%+v", st)
	}
	if n := w.attempts(3, "", ""); n[dead] == 0 {
		t.Errorf("new connections after its return: %v", n)
	}
	var got []string
	for _, e := range w.events {
		if e.What == "ejected" || e.What == "returned" {
			got = append(got, e.Backend+" "+e.What)
			if (e.Cause == nil) != (e.What == "returned") || e.Address.String() != dead || e.Service != "web" {
				t.Errorf("%+v", e)
			}
		}
	}
	if fmt.Sprint(got) != "[b11 ejected b11 returned]" {
		t.Error(got)
	}
}

func TestUnansweredConnectionsEjectToo(t *testing.T) {
	src := strings.Replace(withBackends("keep", 11, 12), "table: {size: 1024}", "table: {size: 1024, tcp: {syn: 2s}}", 1)
	w := newJudged(t, src+passive)
	w.attempts(12, dead, "silent")
	if st := w.status("b11"); !st.Ejected || !strings.Contains(st.Down[0].Cause, " unanswered") {
		t.Fatalf("%+v", st)
	}
}

func TestABackendThatAnswersSomeIsNotEjected(t *testing.T) {
	w := newJudged(t, withBackends("keep", 11, 12)+passive)
	for range 5 {
		w.attempts(3, dead, "refused")
		w.attempts(1, "", "")
	}
	if st := w.status("b11"); st.Ejected {
		t.Errorf("%+v", st)
	}
}

func TestTheOnlyBackendIsNeverEjected(t *testing.T) {
	w := newJudged(t, withBackends("keep", 11)+"    passive: {failures: 1, window: 1s, max_ejected: 100}\n")
	w.attempts(10, dead, "refused")
	if w.status("b11").Ejected {
		t.Error("ejected")
	}
}

func TestTheEjectedServeAgainWhenTheOthersGoDown(t *testing.T) {
	w := newJudged(t, withBackends("keep", 11, 12)+passive)
	w.attempts(6, dead, "refused")
	w.setHealth("b12", false)
	w.refused(0, client("198.18.0.9:1", web, "S").bytes(), packet.DropNoBackend)
	w.judge()
	if got := flowOf(w.connect("198.18.0.9:2")).dst.String(); got != dead {
		t.Errorf("went to %s", got)
	}
}

// A SYN that got no answer finds another backend when it is sent again: its ports are the same.
func TestASYNLeavesAnEjectedBackend(t *testing.T) {
	w := newJudged(t, withBackends("keep", 11, 12)+passive)
	src, open := "", ""
	for i := 0; src == ""; i++ {
		try := fmt.Sprintf("198.18.0.9:%d", 1000+i)
		out := w.expect(0, client(try, web, "S").bytes(), 1)
		switch to := flowOf(out).dst.String(); {
		case to == dead && open != "":
			src = try
		case to == dead:
			open = try
			fallthrough
		default:
			w.expect(1, answer(out, "SA").bytes(), 0)
		}
	}
	w.expect(0, client(open, web, "A").bytes(), 1)
	w.attempts(6, dead, "refused")
	if got := flowOf(w.connect(src)).dst.String(); got == dead {
		t.Error("sent to the ejected backend again")
	}
	if got := flowOf(w.expect(0, client(open, web, "S").bytes(), 1)).dst.String(); got != dead {
		t.Error("a SYN, which anybody may have sent, ended a connection")
	}
}

func TestDatagramsLeaveAnEjectedBackend(t *testing.T) {
	src := strings.Replace(withBackends("keep", 11, 12), "address: 198.18.1.1:80", "address: 198.18.1.1:80\n    protocol: udp", 1)
	w := newJudged(t, src+passive)
	host, out := "", []byte(nil)
	for i := 0; host == ""; i++ {
		try := fmt.Sprintf("198.18.0.9:%d", 1000+i)
		if out = w.expect(0, client(try, web, "").bytes(), 1); flowOf(out).dst.String() == dead {
			host = try
		}
	}
	w.after(5 * time.Second)
	for range 3 {
		w.expect(1, message{
			src: "198.18.2.254", dst: flowOf(out).src.Addr().String(), kind: wire.ICMPUnreachable, code: wire.ICMPHostUnreachable,
			about: out, from: macBackend, to: macGw1,
		}.bytes(), 0)
	}
	w.judge()
	if !w.status("b11").Ejected {
		t.Fatal("not ejected")
	}
	if got := flowOf(w.expect(0, client(host, web, "").bytes(), 1)).dst.String(); got == dead {
		t.Error("stays")
	}
}

// datagrams sends a datagram of a new client every second, and lets its backend answer where answers says so.
func (w *world) datagrams(first, n int, answers func(backend string) bool) {
	w.t.Helper()
	for i := range n {
		out := w.expect(0, client(fmt.Sprintf("198.18.0.9:%d", first+i), web, "").bytes(), 1)
		if answers(flowOf(out).dst.String()) {
			w.expect(1, answer(out, "").bytes(), 0)
		}
		w.after(time.Second)
		w.judge()
	}
}

func TestSilenceIsAFailureOfDatagramsOnlyWhileOthersAnswer(t *testing.T) {
	src := strings.Replace(withBackends("keep", 11, 12), "address: 198.18.1.1:80", "address: 198.18.1.1:80\n    protocol: udp", 1)
	w := newJudged(t, strings.Replace(src, "{size: 1024}", "{size: 1024, udp: 2s}", 1)+passive)
	w.datagrams(1000, 60, func(string) bool { return false }) // one way, such as syslog
	for _, b := range []string{"b11", "b12"} {
		if st := w.status(b); st.Ejected {
			t.Fatalf("%s of a one-way service is ejected: %+v", b, st.Down)
		}
	}
	w.datagrams(1500, 10, func(string) bool { return true })
	w.datagrams(1600, 60, func(string) bool { return false })
	for _, b := range []string{"b11", "b12"} {
		if st := w.status(b); st.Ejected {
			t.Fatalf("%s is ejected after answers have ended everywhere: %+v", b, st.Down)
		}
	}
	w.datagrams(2000, 40, func(b string) bool { return b != dead })
	if !w.status("b11").Ejected || w.status("b12").Ejected {
		t.Error("a backend that is silent while the other one answers is not ejected, or the other one is")
	}
}

func TestAReloadKeepsEjectionsWhoseSettingsStay(t *testing.T) {
	other := strings.Replace(passive, "down: 10s", "down: 11s", 1)
	for _, c := range []struct {
		name, src string
		want      bool
	}{
		{"the same", withBackends("keep", 11, 12) + passive, true},
		{"another backend", withBackends("keep", 11, 12, 13) + passive, true},
		{"other settings", withBackends("keep", 11, 12) + other, false},
		{"none", withBackends("keep", 11, 12), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newJudged(t, withBackends("keep", 11, 12)+passive, withBackends("keep", 13))
			w.attempts(6, dead, "refused")
			w.reload(c.src)
			w.judge()
			if got := w.status("b11").Ejected; got != c.want {
				t.Errorf("ejected %v, want %v", got, c.want)
			}
			if n := w.attempts(3, "", ""); (n[dead] == 0) != c.want {
				t.Errorf("new connections: %v", n)
			}
		})
	}
}
