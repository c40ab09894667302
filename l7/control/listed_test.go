package control

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/metrics"
)

// stateOf returns a pool with n backends, of which the last is down.
func stateOf(n int) pool.Status {
	st := pool.Status{Name: "p"}
	for i := range n {
		st.Backends = append(st.Backends, pool.BackendStatus{Healthy: i < n-1})
	}
	return st
}

// As many backends of each pool are listed as fit, one at least, and all where they are asked for.
func TestBackendsOfAScrapeAreBounded(t *testing.T) {
	for _, c := range []struct {
		sel   metrics.Selection
		sizes []int
		want  int
	}{
		{metrics.Selection{}, []int{5, 395}, math.MaxInt},
		{metrics.Selection{}, []int{5, 396}, listedBackends / 2},
		{metrics.Selection{}, []int{10000}, listedBackends},
		{metrics.Selection{}, []int{300, 300}, listedBackends / 2},
		{metrics.Selection{All: true}, []int{10000}, math.MaxInt},
		{metrics.Selection{Names: []string{"p"}}, []int{10000}, math.MaxInt},
	} {
		var pools []pool.Status
		for _, n := range c.sizes {
			pools = append(pools, stateOf(n))
		}
		if got := listedOf(&c.sel, pools); got != c.want {
			t.Errorf("%v: %d, want %d", c.sizes, got, c.want)
		}
	}
	var many []pool.Status
	for range 1000 {
		many = append(many, stateOf(10))
	}
	if got := listedOf(&metrics.Selection{}, many); got != 1 {
		t.Errorf("of very many pools %d each", got)
	}
}

// Those that are down are listed first, and all are counted.
func TestTheListedBackendsAreThoseThatAreDown(t *testing.T) {
	var options []pool.BackendOptions
	for i := range 9 {
		options = append(options, pool.BackendOptions{Name: fmt.Sprint("b", i), Weight: 1})
	}
	p, err := pool.New(pool.Options{Name: "p"}, options, 1)
	if err != nil {
		t.Fatal(err)
	}
	r := metrics.NewRegistry(metrics.Build{})
	r.Add(func(w *metrics.Writer) {
		st := p.Status(0)
		for i := range st.Backends {
			st.Backends[i].Healthy = i != 3 && i != 8
		}
		writePool(w, &st, 3)
	})
	series, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprint(series)
	for _, want := range []string{
		`millrace_pool_backends{pool="p",state="up"} 7`, `millrace_pool_backends{pool="p",state="down"} 2`, `millrace_pool_unlisted_backends{pool="p"} 6`,
		`millrace_pool_backend_up{backend="b3",pool="p"} 0`, `millrace_pool_backend_up{backend="b8",pool="p"} 0`, `millrace_pool_backend_up{backend="b0",pool="p"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
	if n := strings.Count(text, "millrace_pool_backend_up{"); n != 3 {
		t.Errorf("%d backends are listed", n)
	}
}
