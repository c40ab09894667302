package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/millrace/millrace/gateway/resolve"
	l7control "github.com/millrace/millrace/l7/control"
)

// showListeners prints the listeners of a gateway, and what they have done.
func showListeners(c *console, st *l7control.Status) {
	for i := range st.Listeners {
		l := &st.Listeners[i]
		var words []string
		for _, v := range l.Versions {
			words = append(words, string(v))
		}
		for _, a := range l.Addresses {
			words = append(words, a.String())
		}
		c.line("listener", "%s %s %s, %s connections open%s", l.Name, l.Protocol, strings.Join(words, " "), group(uint64(l.Open)), refused(c, l.Refused))
	}
	for i := range st.Listeners {
		for k := range st.Listeners[i].Certificates {
			showCertificate(c, st.Listeners[i].Name, &st.Listeners[i].Certificates[k])
		}
	}
	n := &st.Counts
	c.line("clients", "%s connections open, %s so far; requests %s in progress, %s so far, %s malformed, %s retries",
		group(uint64(n.OpenConnections)), group(n.Connections), group(uint64(n.ActiveRequests)), group(n.Requests), group(n.Malformed), group(n.Retries))
	c.line("responses", "%s", tally(n.Responses))
	if s := &n.Streams; s.Passed > 0 {
		c.line("streams", "%s open, %s so far; unrouted %s, no hello %s, no backend %s, cut %s", group(uint64(s.Active)), group(s.Passed),
			group(s.Unrouted), group(s.NoHello), group(s.Failed), group(s.Cut))
	}
	c.line("backends", "%s connections opened, %s failed; %s requests on one that was open", group(n.BackendConnections), group(n.BackendFailures), group(n.Reused))
	if n.LogDropped > 0 {
		c.line("access log", "%s", c.paint(yellow, group(n.LogDropped)+" lines dropped"))
	}
}

// showCertificate prints a certificate of a listener: in red where there is none, or no more, in yellow where attempts fail.
func showCertificate(c *console, listener string, s *l7control.CertificateStatus) {
	line, color := fmt.Sprintf("%s %s: ", listener, strings.Join(s.Names, " ")), ""
	switch {
	case s.NotAfter == nil:
		line, color = line+"none yet", red
	case time.Until(*s.NotAfter) < 0:
		line, color = line+"expired "+s.NotAfter.Local().Format(time.DateTime), red
	default:
		line += "expires " + s.NotAfter.Local().Format(time.DateTime)
	}
	if s.Next != nil {
		line += ", next attempt " + s.Next.Local().Format(time.DateTime)
	}
	if s.Error != "" {
		if color == "" {
			color = yellow
		}
		line += ": " + s.Error
	}
	if color != "" {
		line = c.paint(color, line)
	}
	c.line("certificate", "%s", line)
}

// refused formats the connections that a listener has refused, if there are some.
func refused(c *console, by map[string]uint64) string {
	if len(by) == 0 {
		return ""
	}
	return ", " + c.paint(yellow, "refused "+tally(by))
}

// Of more backends than manyBackends the status for people has sums of the first pools or services, and the first backends that are
// down: a screen. Those with more backends that are down come first, then those with more requests in progress.
const (
	manyBackends   = 100
	summedPools    = 20
	summedServices = 20
	shownDown      = 10
)

// showManyPools prints pools in a screen.
func showManyPools(c *console, pools []l7control.PoolStatus) {
	sums := map[string]*l7control.PoolSummary{}
	var all l7control.PoolSummary
	for i := range pools {
		s := pools[i].Sum()
		sums[pools[i].Name] = s
		all.Backends, all.Down = all.Backends+s.Backends, all.Down+s.Down
	}
	slices.SortStableFunc(pools, func(a, b l7control.PoolStatus) int {
		x, y := sums[a.Name], sums[b.Name]
		return cmp.Or(cmp.Compare(y.Down, x.Down), cmp.Compare(y.Requests, x.Requests))
	})
	first := pools[:min(len(pools), summedPools)]
	c.printf("\n%s backends in %s pools, %s of them down (--all, or name pools)\n\n", group(uint64(all.Backends)), group(uint64(len(pools))), group(uint64(all.Down)))
	showPoolSummary(c, first)
	if more := len(pools) - len(first); more > 0 {
		c.printf("%s more pools\n", group(uint64(more)))
	}
	left := shownDown
	for i := range pools {
		for k := range pools[i].Backends {
			if b := &pools[i].Backends[k]; (!b.Healthy || b.Ejected) && left > 0 {
				left--
				c.printf("  %s\n", c.paint(red, fmt.Sprintf("%s/%s is down: %s", pools[i].Name, b.Name, b.Cause)))
			}
		}
	}
}

// showPools prints pools with their backends, or without those in a screen where there are many, unless all are asked for.
func showPools(c *console, pools []l7control.PoolStatus, all bool) {
	n := 0
	for i := range pools {
		n += len(pools[i].Backends)
	}
	if n > manyBackends && !all {
		showManyPools(c, pools)
		return
	}
	shown := len(pools)
	if !all {
		shown = min(shown, maxServices)
	}
	for i := range pools[:shown] {
		showPool(c, &pools[i])
	}
	if more := len(pools) - shown; more > 0 {
		c.printf("\n%s more pools (--all, or name pools)\n", group(uint64(more)))
	}
}

func showPool(c *console, p *l7control.PoolStatus) {
	c.printf("\n%s %s %s", c.paint(bold, p.Name), p.Protocol, p.Balance)
	if p.Panic {
		c.printf(" %s", c.paint(red, "too few backends are up: health is ignored"))
	}
	c.printf("\n")
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  backend\taddress\tstate\tweight\thealth\trequests\tconns\t2xx\t3xx\t4xx\t5xx\tfailures\tlatency")
	for i := range p.Backends {
		b := &p.Backends[i]
		fmt.Fprintf(w, "  %s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", b.Name, b.Where(), poolState(b), b.Weight, poolHealth(b),
			group(uint64(b.Requests)), group(uint64(b.Connections)), group(b.Responses["2xx"]), group(b.Responses["3xx"]),
			group(b.Responses["4xx"]), group(b.Responses["5xx"]), group(sumOf(b.Failures)), time.Duration(b.Latency*float64(time.Second)).Round(10*time.Microsecond))
	}
	_ = w.Flush()
	for i := range p.Names {
		showName(c, &p.Names[i])
	}
	for i := range p.Backends {
		b := &p.Backends[i]
		switch {
		case b.Cause == "":
		case b.Ejected:
			c.printf("  %s\n", c.paint(red, fmt.Sprintf("%s is ejected for %v: %s", b.Name, time.Duration(b.EjectedSeconds*float64(time.Second)).Round(time.Second), b.Cause)))
		default:
			since := ""
			if b.Since != nil {
				since = " since " + b.Since.Local().Format(time.DateTime)
			}
			c.printf("  %s\n", c.paint(red, fmt.Sprintf("%s is down%s by its check: %s", b.Name, since, b.Cause)))
		}
	}
}

// showName prints a name that backends come from: in red where there are none, in yellow where they may be old.
func showName(c *console, n *l7control.NameStatus) {
	color, next := "", ""
	if n.Next != nil {
		next = ", next look-up " + n.Next.Local().Format(time.TimeOnly)
	}
	line := fmt.Sprintf("%s: %s, %d addresses%s", n.Name, n.State, n.Targets, next)
	switch n.State {
	case resolve.Unresolved.String():
		color = red
	case resolve.Stale.String():
		color = yellow
	}
	if n.Error != "" {
		line += ": " + n.Error
	}
	if color != "" {
		line = c.paint(color, line)
	}
	c.printf("  %s\n", line)
}

// poolState formats the state of a backend, and how an operator has changed it.
func poolState(b *l7control.BackendStatus) string {
	s := b.State
	if b.SlowStart < 100 {
		s += fmt.Sprintf(", %d %%", b.SlowStart)
	}
	if b.Operator {
		s += " (operator)"
	}
	return s
}

func poolHealth(b *l7control.BackendStatus) string {
	switch {
	case !b.Healthy:
		return "down"
	case b.Ejected:
		return "ejected"
	}
	return "up"
}

func sumOf(m map[string]uint64) (n uint64) {
	for _, k := range m {
		n += k
	}
	return n
}

// showPoolSummary prints a line for each pool.
func showPoolSummary(c *console, pools []l7control.PoolStatus) {
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "pool\tprotocol\tup\trequests\tconns\t2xx\t3xx\t4xx\t5xx\tfailures\tretries")
	for i := range pools {
		p := &pools[i]
		sum := p.Sum()
		fmt.Fprintf(w, "%s\t%s\t%d/%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", p.Name, p.Protocol, sum.Up, sum.Backends, group(uint64(sum.Requests)), group(uint64(sum.Connections)),
			group(sum.Responses["2xx"]), group(sum.Responses["3xx"]), group(sum.Responses["4xx"]), group(sum.Responses["5xx"]), group(sum.Failures), group(p.Retries))
	}
	_ = w.Flush()
}
