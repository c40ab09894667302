package collective

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/collective/link"
)

// short is a time-out of tests that wait for it.
const short = 400 * time.Millisecond

// all calls do for each rank at a time, and returns their errors.
func all(comms []*Comm, do func(c *Comm) error) []error {
	errs := make([]error, len(comms))
	var wg sync.WaitGroup
	for r, c := range comms {
		wg.Go(func() { errs[r] = do(c) })
	}
	wg.Wait()
	return errs
}

func locals(t *testing.T, n int, cfg Config) []*Comm {
	t.Helper()
	cfg.NoMeasure = true
	comms, err := Local(t.Context(), n, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, c := range comms {
			c.w.shut()
		}
	})
	return comms
}

// named fails the test unless all ranks but some have an Error that names these.
func named(t *testing.T, errs []error, kind Failure, failed ...int) {
	t.Helper()
	for r, err := range errs {
		if slices.Contains(failed, r) {
			continue
		}
		var e *Error
		if !errors.As(err, &e) || e.Kind != kind || !slices.Equal(e.Ranks, failed) {
			t.Errorf("rank %d: %v, want ranks %v, %s", r, err, failed, kind)
		}
	}
}

func sum(c *Comm, n int) error {
	v := make([]int32, n)
	return c.AllReduce(Slice(v), Slice(v), Sum)
}

// TestDeadRankIsNamed ends each rank in turn, in the middle of operations of every algorithm.
func TestDeadRankIsNamed(t *testing.T) {
	const n = 5
	for i, a := range Algorithms(KindAllReduce) {
		dead := i % n
		comms := locals(t, n, Config{Timeout: 10 * time.Second})
		errs := all(comms, func(c *Comm) error {
			if err := c.SetAlgorithm(KindAllReduce, a); err != nil {
				return err
			}
			for k := 0; ; k++ {
				if c.Rank() == dead && k == 20 {
					c.w.shut()
					return nil
				}
				if err := sum(c, 100_000); err != nil {
					return err
				}
			}
		})
		named(t, errs, Died, dead)
	}
}

func TestHangingRankIsNamed(t *testing.T) {
	t.Parallel()
	for _, hung := range []int{0, 2} {
		comms := locals(t, 3, Config{Timeout: short})
		errs := all(comms, func(c *Comm) error {
			if c.Rank() == hung {
				<-c.w.failed // computes
				return nil
			}
			return sum(c, 10)
		})
		named(t, errs, Hung, hung)
	}
}

// TestStoppedRankIsNamed has a rank whose process does not even answer the coordinator.
func TestStoppedRankIsNamed(t *testing.T) {
	t.Parallel()
	comms := locals(t, 4, Config{Timeout: short})
	w := comms[2].w
	w.mu.Lock() // stops its answers
	errs := all(comms[:2], func(c *Comm) error { return sum(c, 10) })
	w.mu.Unlock()
	named(t, errs, Hung, 2)
	if !strings.Contains(errs[0].Error(), "no answer") {
		t.Error(errs[0])
	}
}

func TestDifferentCallsAreNamed(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]func(c *Comm) error{
		"count": func(c *Comm) error { return sum(c, 11) },
		"type":  func(c *Comm) error { v := make([]float32, 10); return c.AllReduce(Slice(v), Slice(v), Sum) },
		"op":    func(c *Comm) error { v := make([]int32, 10); return c.AllReduce(Slice(v), Slice(v), Max) },
		"kind":  func(c *Comm) error { return c.Barrier() },
	} {
		for _, debug := range []bool{false, true} {
			comms := locals(t, 4, Config{Timeout: short, Debug: debug})
			errs := all(comms, func(c *Comm) error {
				if err := sum(c, 3); err != nil {
					return err
				}
				if c.Rank() == 1 {
					return other(c)
				}
				return sum(c, 10)
			})
			named(t, errs, Differs, 1)
			var e *Error
			if errors.As(errs[0], &e) && !strings.Contains(e.Reason, "all-reduce of 10 int32, sum") {
				t.Errorf("%s, debug %v: %v", name, debug, e)
			}
		}
	}
}

// TestLyingRankIsNamed has a rank send bytes that are no message.
func TestLyingRankIsNamed(t *testing.T) {
	comms := locals(t, 3, Config{Timeout: 10 * time.Second})
	errs := all(comms, func(c *Comm) error {
		if c.Rank() != 2 {
			return sum(c, 10)
		}
		for _, l := range c.w.links[:2] {
			l.Close(nil)
		}
		<-c.w.failed
		return nil
	})
	named(t, errs, Died, 2)
	a, b := net.Pipe()
	l := link.NewSingle(a)
	go func() { _, _ = b.Write(make([]byte, link.HeaderSize)) }()
	err := l.Recv(&link.Header{}, nil)
	s := suspectFrame{Kind: Died}
	if classify(&s, err); s.Kind != Violated {
		t.Errorf("%v is %s", err, s.Kind)
	}
}

func TestRankThatLeftIsNamed(t *testing.T) {
	comms := locals(t, 3, Config{Timeout: 10 * time.Second})
	errs := all(comms, func(c *Comm) error {
		if c.Rank() == 1 {
			return c.Close()
		}
		return sum(c, 10)
	})
	named(t, errs, Left, 1)
	if err := comms[1].Barrier(); !errors.Is(err, ErrClosed) {
		t.Errorf("a call after Close: %v", err)
	}
}

// TestShrinkGoesOn loses rank 0, and then one more, and sums with those that are left.
func TestShrinkGoesOn(t *testing.T) {
	comms := locals(t, 5, Config{Timeout: 10 * time.Second})
	for _, lost := range []int{0, 2} {
		errs := all(comms, func(c *Comm) error {
			if c.Rank() == lost {
				c.w.shut()
				return nil
			}
			return sum(c, 50_000)
		})
		named(t, errs, Died, lost)
		comms = slices.Delete(slices.Clone(comms), lost, lost+1)
		errs = all(comms, func(c *Comm) error {
			size := c.Size()
			c, err := c.Shrink(t.Context())
			if err != nil {
				return err
			}
			comms[c.Rank()] = c
			v := []int64{1 << (4 * c.Rank())}
			if err := c.AllReduce(Slice(v), Slice(v), Sum); err != nil {
				return err
			}
			if c.Size() != size-1 || v[0] != 0x11111>>(20-4*c.Size()) {
				return fmt.Errorf("%d ranks sum to %#x", c.Size(), v[0])
			}
			return nil
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(all(comms, func(c *Comm) error { return c.Close() })...); err != nil {
		t.Error(err)
	}
	if _, err := locals(t, 1, Config{})[0].Shrink(t.Context()); !errors.Is(err, ErrIntact) {
		t.Errorf("Shrink without a failure: %v", err)
	}
}

func TestSplitMakesGroups(t *testing.T) {
	local(t, 7, Config{}, func(c *Comm) error {
		s, err := c.Split(c.Rank()%3-1, -c.Rank()) // color -1 is none; the order is reversed
		if err != nil {
			return err
		}
		if c.Rank()%3 == 0 {
			if s != nil {
				return errors.New("a communicator of no color")
			}
			return c.Barrier()
		}
		v, w := []int32{int32(c.Rank())}, make([]int32, s.Size())
		g := s.Group()
		g.AllGather(Slice(w), Slice(v))
		if err := errors.Join(c.Barrier(), g.Wait()); err != nil { // both communicators at a time
			return err
		}
		want := map[int][]int32{1: {4, 1}, 2: {5, 2}}[c.Rank()%3]
		if !slices.Equal(w, want) || w[s.Rank()] != v[0] {
			return fmt.Errorf("rank %d is in %v", c.Rank(), w)
		}
		return s.Close()
	})
}

// TestSingleMessages sends around, in both directions at a time, with tags out of order.
func TestSingleMessages(t *testing.T) {
	local(t, 4, Config{}, func(c *Comm) error {
		n := c.Size()
		right, left := (c.Rank()+1)%n, (c.Rank()+n-1)%n
		const long = 300_000
		a, b, big := make([]int32, 1), make([]int32, 1), make([]int32, long)
		send := make([]int32, long)
		send[long-1] = int32(c.Rank())
		g := c.Group()
		g.Send(Slice([]int32{1}), right, 7)
		g.Send(Slice([]int32{2}), right, 7)
		g.Send(Slice(send), right, 8)
		g.AllReduce(Slice([]int32{1}), Slice([]int32{1}), Sum)
		g.Recv(Slice(big), left, 8)
		if err := errors.Join(c.Recv(Slice(a), left, 7), c.Recv(Slice(b), left, 7), g.Wait()); err != nil {
			return err
		}
		if a[0] != 1 || b[0] != 2 || big[long-1] != int32(left) {
			return fmt.Errorf("got %d, %d, %d", a[0], b[0], big[long-1])
		}
		return nil
	})
}

func TestWrongArgumentsAreErrors(t *testing.T) {
	comms := locals(t, 1, Config{})
	c := comms[0]
	one, two, f := Slice([]int32{1}), Slice([]int32{1, 2}), Slice([]float32{1})
	huge := InMemory(&hostMemory{t: Int8}, Int8, 1<<40)
	for name, err := range map[string]error{
		"lengths":    c.AllReduce(one, two, Sum),
		"types":      c.AllReduce(one, f, Sum),
		"op":         c.AllReduce(one, one, Op(9)),
		"compressed": c.AllReduce(Compressed([]float32{1}), f, Sum),
		"no vector":  c.AllReduce(Buffer{}, Buffer{}, Sum),
		"huge":       c.AllReduce(huge, huge, Sum),
		"root":       c.Broadcast(one, 1),
		"below":      c.Reduce(one, one, Sum, -1),
		"peer":       c.Send(one, 0, 1),
		"parts":      c.AllGather(two, one),
		"counts":     c.AllGatherV(one, one, []int{1, 2}),
		"negative":   c.AllGatherV(one, one, []int{-1}),
		"other":      c.AllToAllV(one, one, []int{1}, []int{2}),
		"unlike":     c.AllToAllV(two, one, []int{2}, []int{1}),
		"scatter":    c.Scatter(two, one, 0),
		"reduce to":  c.ReduceScatter(one, one, 0),
		"algorithm":  c.SetAlgorithm(KindAllReduce, Bruck),
		"kind":       c.SetAlgorithm("sort", Ring),
		"started so": c.Group().AllReduce(one, two, Sum).Wait(),
	} {
		if !errors.Is(err, ErrArguments) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := errors.Join(sum(c, 0), sum(c, 1)); err != nil {
		t.Errorf("sizes of 0 and 1: %v", err)
	}
}
