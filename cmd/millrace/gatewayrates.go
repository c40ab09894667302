package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/millrace/millrace/gateway/admin"
)

// mostRates is the number of backends whose rates --watch shows: those with the most traffic.
const mostRates = 20

// rates are what a gateway has done in a time, a second each.
type rates struct {
	over               time.Duration
	now, before        *admin.Status
	requests, accepted float64
	rows               []rateRow
}

// rateRow is a backend of a service or a pool.
type rateRow struct {
	of, backend                   string
	opened, answered, failed, pps float64
}

func (r *rateRow) traffic() float64 { return r.answered + r.failed + r.pps }

// ratesOf compares two pictures of a gateway. There are none where it has been started anew meanwhile.
func ratesOf(now, before *admin.Status, over time.Duration) *rates {
	if before == nil || !now.Started.Equal(before.Started) || over <= 0 {
		return nil
	}
	r := &rates{over: over, now: now, before: before}
	if now.Listeners != nil && before.Listeners != nil {
		r.requests = r.each(now.Listeners.Counts.Requests, before.Listeners.Counts.Requests)
		r.accepted = r.each(now.Listeners.Counts.Connections, before.Listeners.Counts.Connections)
	}
	r.services()
	r.pools()
	slices.SortStableFunc(r.rows, func(a, b rateRow) int { return cmp.Compare(b.traffic(), a.traffic()) })
	return r
}

// each returns how much a counter has grown in a second.
func (r *rates) each(now, before uint64) float64 { return admin.PerSecond(now, before, r.over) }

// services adds the backends of services.
func (r *rates) services() {
	type key struct{ service, backend, address string }
	type counts struct{ opened, packets uint64 }
	was := map[key]counts{}
	for i := range r.before.Gateway.Services {
		s := &r.before.Gateway.Services[i]
		if sum := s.Summary; sum != nil {
			was[key{service: s.Name}] = counts{sum.Opened, sum.ToPackets + sum.FromPackets}
		}
		for k := range s.Backends {
			b := &s.Backends[k]
			was[key{s.Name, b.Name, b.Address.String()}] = counts{b.Opened, b.ToPackets + b.FromPackets}
		}
	}
	for i := range r.now.Gateway.Services {
		s := &r.now.Gateway.Services[i]
		if sum := s.Summary; sum != nil { // in place of its backends
			w := was[key{service: s.Name}]
			r.rows = append(r.rows, rateRow{of: s.Name, backend: "all", opened: r.each(sum.Opened, w.opened), pps: r.each(sum.ToPackets+sum.FromPackets, w.packets)})
		}
		for k := range s.Backends {
			b := &s.Backends[k]
			w := was[key{s.Name, b.Name, b.Address.String()}]
			r.rows = append(r.rows, rateRow{of: s.Name, backend: b.Name, opened: r.each(b.Opened, w.opened), pps: r.each(b.ToPackets+b.FromPackets, w.packets)})
		}
	}
}

// pools adds the backends of pools.
func (r *rates) pools() {
	if r.now.Listeners == nil || r.before.Listeners == nil {
		return
	}
	type key struct{ pool, backend, where string }
	type counts struct{ answered, failed uint64 }
	was := map[key]counts{}
	for i := range r.before.Listeners.Pools {
		p := &r.before.Listeners.Pools[i]
		for k := range p.Backends {
			b := &p.Backends[k]
			was[key{p.Name, b.Name, b.Where()}] = counts{sumOf(b.Responses), sumOf(b.Failures) + b.Responses["5xx"]}
		}
	}
	for i := range r.now.Listeners.Pools {
		p := &r.now.Listeners.Pools[i]
		for k := range p.Backends {
			b := &p.Backends[k]
			w := was[key{p.Name, b.Name, b.Where()}]
			r.rows = append(r.rows, rateRow{
				of: p.Name, backend: b.Name, answered: r.each(sumOf(b.Responses), w.answered), failed: r.each(sumOf(b.Failures)+b.Responses["5xx"], w.failed),
			})
		}
	}
}

// perSecond formats a rate: small ones with a digit behind the point, so that one event in a long interval is no 0.
func perSecond(v float64) string {
	if v > 0 && v < 10 {
		return fmt.Sprintf("%.1f", v)
	}
	return group(uint64(math.Round(v)))
}

// show prints the rates: of the gateway, and of the backends that have some.
func (r *rates) show(c *console) {
	if r == nil {
		return
	}
	if r.now.Listeners != nil {
		c.line("a second", "%s requests, %s connections of clients", perSecond(r.requests), perSecond(r.accepted))
	}
	if r.now.Engine.Name != "" { // without devices there is none
		n, b := &r.now.Counts, &r.before.Counts
		c.line("a second", "%s packets received, %s forwarded, %s dropped", perSecond(r.each(n.Received, b.Received)), perSecond(r.each(n.Forwarded, b.Forwarded)),
			perSecond(r.each(sumOf(n.Dropped), sumOf(b.Dropped))))
	}
	busy := slices.IndexFunc(r.rows, func(row rateRow) bool { return row.traffic()+row.opened == 0 })
	if busy < 0 {
		busy = len(r.rows)
	}
	if busy == 0 {
		return
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  of\tbackend\tresponses/s\tfailures and 5xx/s\tnew connections/s\tpackets/s")
	for _, row := range r.rows[:min(busy, mostRates)] {
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%s\n", row.of, row.backend, perSecond(row.answered), perSecond(row.failed), perSecond(row.opened), perSecond(row.pps))
	}
	_ = w.Flush()
	if more := busy - mostRates; more > 0 {
		c.printf("  %s more backends with traffic\n", group(uint64(more)))
	}
	c.printf("\n")
}
