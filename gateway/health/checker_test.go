package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/testkit/testport"
)

// script is a Dialer. What the n-th call for an address meets is the n-th character of its text:
// '+' connects, '-' is refused, '.' hangs until the timeout; the last one counts for all further.
type script struct {
	mu      sync.Mutex
	text    map[string]string
	calls   map[string][]time.Time
	running int
	most    int // at once
}

func newScript(text map[string]string) *script {
	return &script{text: text, calls: map[string][]time.Time{}}
}

var errRefused = errors.New("refused")

func (s *script) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	switch s.enter(address) {
	case '-':
		s.leave()
		return nil, errRefused
	case '.':
		<-ctx.Done()
		s.leave()
		return nil, ctx.Err()
	}
	time.Sleep(time.Millisecond)
	s.leave()
	a, b := net.Pipe()
	b.Close()
	return a, nil
}

func (s *script) enter(address string) byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running++
	s.most = max(s.most, s.running)
	s.calls[address] = append(s.calls[address], time.Now())
	text := s.text[address]
	if text == "" {
		return '+'
	}
	if len(text) > 1 {
		s.text[address] = text[1:]
	}
	return text[0]
}

func (s *script) leave() {
	s.mu.Lock()
	s.running--
	s.mu.Unlock()
}

// now returns how many calls are under way.
func (s *script) now() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// times returns when an address was called.
func (s *script) times(address string) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls[address])
}

const first = "198.18.2.1:80"

// watchOf returns a backend with the given number at an address.
func watchOf(id int, at string, c *Check) Watch {
	return Watch{ID: uint32(id), Target: Target{At: netip.MustParseAddrPort(at), Backend: "b", Service: "s"}, Check: c}
}

// each returns n backends at addresses of their own.
func each(n int, c *Check) (list []Watch) {
	for i := range n {
		list = append(list, watchOf(i, fmt.Sprintf("198.18.%d.%d:80", 2+i/250, 1+i%250), c))
	}
	return list
}

func letters(changes []Change) (s string) {
	for _, c := range changes {
		s += map[bool]string{true: "U", false: "D"}[c.Healthy]
	}
	return s
}

func TestABackendRisesAndFalls(t *testing.T) {
	for _, c := range []struct{ name, calls, want string }{
		{"all is well", "++++++++", ""},
		{"two failures are not three", "--+--+--+", ""},
		{"three in a row", "+---", "D"},
		{"hanging counts as failing", "+...", "D"},
		{"back after two", "---++", "DU"},
		{"one success is not enough", "---+-+-+-", "D"},
		{"down, up and down", "---++---", "DUD"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dial, got := newScript(map[string]string{first: c.calls}), ""
				var k *Checker
				k = NewChecker(Options{Dialer: dial, Notify: func() {
					for _, ch := range k.Take() {
						got += letters([]Change{ch})
						if ch.Healthy == (ch.Cause != nil) || ch.Since.IsZero() {
							t.Errorf("%+v", ch)
						}
					}
				}})
				k.Set([]Watch{watchOf(7, first, New())})
				for len(dial.times(first)) < len(c.calls) {
					time.Sleep(50 * time.Millisecond)
				}
				time.Sleep(1200 * time.Millisecond) // the last one may hang
				k.Close()
				if got != c.want {
					t.Errorf("changes %q, want %q", got, c.want)
				}
			})
		})
	}
}

func TestProbesKeepTheirIntervalWithJitter(t *testing.T) {
	for _, text := range []string{"+", "."} {
		synctest.Test(t, func(t *testing.T) {
			dial := newScript(map[string]string{first: text})
			k := NewChecker(Options{Dialer: dial})
			start := time.Now()
			k.Set([]Watch{watchOf(0, first, New())})
			time.Sleep(time.Minute)
			k.Close()
			at, differ := dial.times(first), false
			if at[0].Sub(start) > 2*time.Second {
				t.Errorf("the first probe came after %v", at[0].Sub(start))
			}
			for i := 1; i < len(at); i++ {
				d := at[i].Sub(at[i-1])
				if d < 1800*time.Millisecond || d > 2200*time.Millisecond {
					t.Errorf("%v between two probes, want 2 s +- 10 %%", d)
				}
				differ = differ || d != 2*time.Second
			}
			if !differ || len(at) < 25 {
				t.Errorf("%d probes, no two of them differ: %v", len(at), !differ)
			}
		})
	}
}

func TestFirstProbesSpreadOverTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := newScript(nil)
		k := NewChecker(Options{Dialer: dial})
		list := each(2000, New())
		start := time.Now()
		k.Set(list)
		time.Sleep(1790 * time.Millisecond) // before the second probe of any
		k.Close()
		var tenth [10]int
		for _, w := range list {
			for _, at := range dial.times(w.At.String()) {
				tenth[at.Sub(start)*10/(2*time.Second)]++
			}
		}
		for i, n := range tenth[:8] {
			if n < 120 || n > 280 {
				t.Errorf("%d of 2000 first probes in tenth %d of the interval", n, i)
			}
		}
	})
}

func TestEqualProbesOfOneTargetAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial, down := newScript(map[string]string{first: "-"}), map[uint32]bool{}
		var k *Checker
		k = NewChecker(Options{Dialer: dial, Notify: func() {
			for _, c := range k.Take() {
				down[c.ID] = !c.Healthy
			}
		}})
		var list []Watch
		for i := range 10_000 { // services with settings of their own that are equal
			for j := range 16 {
				list = append(list, watchOf(16*i+j, fmt.Sprintf("198.18.2.%d:80", 1+j), New()))
			}
		}
		k.Set(list)
		if k.Targets() != 16 {
			t.Errorf("%d targets are asked, want 16", k.Targets())
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if n := len(dial.times(first)); n < 8 || n > 12 {
			t.Errorf("%d probes in 10 intervals", n)
		}
		if len(down) != 10_000 {
			t.Errorf("%d backends were told of, want 10000", len(down))
		}
		for id, is := range down {
			if !is || id%16 != 0 {
				t.Fatalf("backend %d: down %v", id, is)
			}
		}
		k.Close()
	})
}

func TestOtherSettingsAreOtherProbes(t *testing.T) {
	change := map[string]func(c *Check){
		"nothing": func(*Check) {}, "type": func(c *Check) { c.Type = TypeUDP }, "interval": func(c *Check) { c.Interval++ },
		"timeout": func(c *Check) { c.Timeout-- }, "rise": func(c *Check) { c.Rise++ }, "fall": func(c *Check) { c.Fall++ },
		"port": func(c *Check) { c.Port = 81 }, "device": func(c *Check) { c.Device = "lo" },
		"path": func(c *Check) { c.HTTP.Path = "/x" }, "status": func(c *Check) { c.HTTP.Status = []StatusRange{{200, 200}} },
		"ca": func(c *Check) { c.HTTP.CA = "x" }, "send": func(c *Check) { c.UDP.Send = []byte("x") },
		"silence": func(c *Check) { c.UDP.Silence = SilenceSuccess }, "command": func(c *Check) { c.Command = []string{"/x"} },
	}
	for name, f := range change {
		c, want := New(), 2
		if f(c); name == "nothing" {
			want = 1
		}
		k := NewChecker(Options{Dialer: newScript(nil)})
		k.Set([]Watch{watchOf(0, first, New()), watchOf(1, first, c)})
		if k.Targets() != want {
			t.Errorf("another %s: %d probes, want %d", name, k.Targets(), want)
		}
		k.Close()
	}
	command := New()
	command.Type, command.Command = TypeCommand, []string{"/bin/true"}
	named := watchOf(1, first, command)
	named.Backend = "other"
	k := NewChecker(Options{})
	defer k.Close()
	k.Set([]Watch{watchOf(0, first, command), named, watchOf(2, first, command)})
	if k.Targets() != 2 {
		t.Errorf("%d commands: each name has one of its own, equal ones share it", k.Targets())
	}
}

// Half of the places are for those that answered last time: a thousand that hang do not delay them.
func TestTheHangingDoNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := map[string]string{}
		list := each(1010, New())
		for _, w := range list[10:] {
			text[w.At.String()] = "."
		}
		dial := newScript(text)
		k := NewChecker(Options{Dialer: dial, Sockets: 40})
		k.Set(list)
		time.Sleep(2 * time.Minute) // all that hang have been found out
		settled := time.Now()
		time.Sleep(time.Minute)
		k.Close()
		for _, w := range list[:10] {
			var last time.Time
			for _, at := range dial.times(w.At.String()) {
				if !last.IsZero() && last.After(settled) && at.Sub(last) > 2200*time.Millisecond {
					t.Errorf("%v between two probes", at.Sub(last))
				}
				last = at
			}
			if last.Before(settled) {
				t.Errorf("%s is not asked any more", w.At)
			}
		}
		if dial.most > 40 {
			t.Errorf("%d sockets at once, allowed are 40", dial.most)
		}
		for _, w := range list[10:] {
			if n := len(dial.times(w.At.String())); n < 2 {
				t.Fatalf("%s, which hangs, was asked %d times in 3 minutes", w.At, n)
			}
		}
	})
}

func TestSetKeepsWhatIsEqualAndEndsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const other, third = "198.18.2.2:80", "198.18.2.3:80"
		dial := newScript(map[string]string{other: "-"})
		k := NewChecker(Options{Dialer: dial})
		k.Set([]Watch{watchOf(1, first, New()), watchOf(2, other, New())})
		time.Sleep(10 * time.Second)
		if got := k.Take(); len(got) != 1 || got[0].ID != 2 || got[0].Healthy || !errors.Is(got[0].Cause, errRefused) {
			t.Fatalf("%+v", got)
		}
		w := watchOf(2, other, New())
		w.Down = true
		k.Set([]Watch{w, watchOf(4, other, New()), watchOf(3, third, New())})
		if got := k.Take(); len(got) != 1 || got[0].ID != 4 || got[0].Healthy || got[0].Since.IsZero() {
			t.Errorf("a second backend of a target that is down: %+v", got)
		}
		n := len(dial.times(first))
		time.Sleep(10 * time.Second)
		if len(dial.times(first)) != n {
			t.Error("a backend that is gone is still asked")
		}
		if _, ok := k.State(1); ok {
			t.Error("a backend that is gone has a state")
		}
		if st, ok := k.State(2); !ok || st.Healthy || len(dial.times(other)) < 9 || len(dial.times(third)) < 4 {
			t.Errorf("%+v, %d and %d probes", st, len(dial.times(other)), len(dial.times(third)))
		}
		if got := k.Take(); len(got) != 0 {
			t.Errorf("changes are told twice: %+v", got)
		}
		k.Close()
		k.Set([]Watch{watchOf(1, first, New())})
		time.Sleep(10 * time.Second)
		if len(dial.times(first)) != n {
			t.Error("a closed checker asks")
		}
	})
}

func TestABackendThatWasDownStaysDownUntilItRises(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := NewChecker(Options{Dialer: newScript(nil)})
		w := watchOf(1, first, New())
		w.Down = true
		k.Set([]Watch{w})
		if st, _ := k.State(1); st.Healthy || len(k.Take()) != 0 {
			t.Errorf("%+v", st)
		}
		time.Sleep(10 * time.Second)
		if got := k.Take(); letters(got) != "U" {
			t.Errorf("%+v", got)
		}
		k.Close()
	})
}

// running returns the numbers of the limiters in which probes run.
func (c *Checker) running() (list []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, l := range c.limiters {
		if l.running > 0 {
			list = append(list, i)
		}
	}
	return list
}

func TestABackendIsToldOfOnceHoweverOftenItWasSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := NewChecker(Options{Dialer: newScript(map[string]string{first: "-"})})
		for range 3 {
			k.Set([]Watch{watchOf(1, first, New()), watchOf(2, first, New())})
		}
		time.Sleep(10 * time.Second)
		if got := k.Take(); letters(got) != "DD" {
			t.Errorf("%+v", got)
		}
		k.Close()
	})
}

// What was going on when the watch ended must not be heard.
func TestAProbeThatWasReplacedIsNotHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		c.Fall, c.Interval, c.Timeout = 1, 10*time.Second, 9*time.Second
		told := 0
		k := NewChecker(Options{Dialer: newScript(map[string]string{first: "."}), Notify: func() { told++ }})
		k.Set([]Watch{watchOf(1, first, c)})
		for len(k.running()) == 0 {
			time.Sleep(time.Second) // until it hangs
		}
		k.Set(nil)
		synctest.Wait()
		if got := k.Take(); len(got) != 0 || told != 0 {
			t.Errorf("%+v, told %d times", got, told)
		}
		c = New()
		c.Fall = 1
		k.Set([]Watch{watchOf(1, first, c)})
		time.Sleep(3 * time.Second)
		k.mu.Lock()
		pending := len(k.changed)
		k.mu.Unlock()
		k.Set([]Watch{watchOf(2, "198.18.2.2:80", c)}) // before anybody took it
		if got := k.Take(); pending != 1 || len(got) != 0 {
			t.Errorf("%d pending, then %+v", pending, got)
		}
		k.Close()
	})
}

func TestCloseBreaksOffWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		c.Interval, c.Timeout = time.Hour, time.Hour
		list := each(100, c)
		text := map[string]string{}
		for _, w := range list {
			text[w.At.String()] = "."
		}
		dial := newScript(text)
		k := NewChecker(Options{Dialer: dial, Sockets: 60})
		k.Set(list)
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := dial.now(); n != 30 {
			t.Errorf("%d hang, want the 30 of one limiter", n)
		}
		start := time.Now()
		k.Close()
		if n := dial.now(); time.Since(start) != 0 || n != 0 {
			t.Errorf("Close took %v and left %d", time.Since(start), n)
		}
	})
}

func TestTheCauseHasNoAddress(t *testing.T) {
	err := cause(t.Context(), newProbe(New(), nil)(t.Context(), Target{At: testport.Hold(t)}), time.Second)
	if err == nil || strings.Contains(err.Error(), "127.0.0.1") || err.Error() != "connect: connection refused" {
		t.Errorf("%v", err)
	}
}
