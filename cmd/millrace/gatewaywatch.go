package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/millrace/millrace/gateway/admin"
	l4control "github.com/millrace/millrace/l4/control"
)

// defaultWatch is the interval of --watch without one, and minWatch the shortest.
const (
	defaultWatch = 2 * time.Second
	minWatch     = 100 * time.Millisecond
)

// watch calls show again and again until ctx ends, which is no error. On a terminal each output takes the place of the
// one before; elsewhere an empty line separates them, unless they are JSON.
func (c *console) watch(ctx context.Context, every time.Duration, asJSON bool, show func(context.Context) error) error {
	out, redraw := c.out, c.width > 0 && !asJSON
	defer func() { c.out = out }()
	next := time.NewTicker(every)
	defer next.Stop()
	for first := true; ; first = false {
		var page bytes.Buffer
		if !redraw && !first && !asJSON {
			page.WriteByte('\n')
		}
		c.out = &page
		err := show(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		if c.out = out; redraw {
			err = drawPage(out, page.String(), c.height, first)
		} else {
			_, err = out.Write(page.Bytes())
		}
		if err != nil {
			c.lost = err
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
		}
	}
}

// drawPage writes text over the one before: from the top left corner (ECMA-48 CUP), each line and the screen cleared
// behind it (EL, ED), so that nothing flickers. The first clears the screen. What the height does not hold is left
// out: it would scroll.
func drawPage(w io.Writer, text string, height int, first bool) error {
	if lines := strings.SplitAfter(text, "\n"); height > 1 && len(lines) > height {
		text = strings.Join(lines[:height-2], "") + fmt.Sprintf("... %d more lines\n", len(lines)-height+1)
	}
	head := "\x1b[H"
	if first {
		head = "\x1b[2J\x1b[H"
	}
	_, err := io.WriteString(w, head+strings.ReplaceAll(text, "\n", "\x1b[K\n")+"\x1b[J")
	return err
}

// summaryLine is a service, or all of them, in one line.
type summaryLine struct {
	l4control.ServiceSummary
	dropped uint64
}

func (l *summaryLine) add(o *summaryLine) {
	l.Backends += o.Backends
	l.Up += o.Up
	l.Connections += o.Connections
	l.Opened += o.Opened
	l.ToPackets += o.ToPackets
	l.FromPackets += o.FromPackets
	l.dropped += o.dropped
}

// cells returns the columns behind the name and the addresses.
func (l *summaryLine) cells() string {
	return fmt.Sprintf("%d/%d\t%s\t%s\t%s\t%s\t%s", l.Up, l.Backends, group(l.Connections), group(l.Opened),
		group(l.ToPackets), group(l.FromPackets), group(l.dropped))
}

// showSummary prints a line for each service, and one for all of them, of a status with Selection.Summary.
func showSummary(c *console, st *admin.Status) {
	if st.Listeners != nil && len(st.Listeners.Pools) > 0 {
		showPoolSummary(c, st.Listeners.Pools)
		if len(st.Gateway.Services) == 0 {
			return
		}
		c.printf("\n")
	}
	showServiceSummary(c, st.Gateway.Services, true)
}

// showServiceSummary prints a line for each of services that have sums, and if asked for one for all.
func showServiceSummary(c *console, services []l4control.ServiceStatus, sum bool) {
	var total summaryLine
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "service\tprotocol\taddress\tup\tconns\topened\tto backends\tfrom backends\tdropped")
	for i := range services {
		s := &services[i]
		var line summaryLine
		if s.Summary != nil {
			line.ServiceSummary = *s.Summary
		}
		for _, n := range s.Dropped {
			line.dropped += n
		}
		total.add(&line)
		at := ""
		if len(s.Addresses) > 0 {
			at = s.Addresses[0].String()
		}
		if more := len(s.Addresses) - 1; more > 0 {
			at += fmt.Sprintf(" +%d", more)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.Name, s.Protocol, at, line.cells())
	}
	if sum {
		fmt.Fprintf(w, "total\t\t%s services\t%s\n", group(uint64(len(services))), total.cells())
	}
	_ = w.Flush()
}

// showManyServices prints services in a screen: those with the most backends that are down first, then those with the most connections.
func showManyServices(c *console, st *l4control.Status) {
	services := slices.Clone(st.Services) // --watch has the backends of st for its rates
	all, down, causes := len(services)+st.MoreServices, st.MoreDown, []string(nil)
	downs := make(map[string]int, len(services))
	for i := range services {
		s := &services[i]
		for k := range s.Backends {
			if b := &s.Backends[k]; !b.Healthy || b.Ejected {
				downs[s.Name]++
				causes = append(causes, fmt.Sprintf("%s/%s is down%s", s.Name, b.Name, causeOf(b)))
			}
		}
		down += downs[s.Name]
		s.Summarize()
	}
	slices.SortStableFunc(services, func(a, b l4control.ServiceStatus) int {
		return cmp.Or(cmp.Compare(downs[b.Name], downs[a.Name]), cmp.Compare(b.Summary.Connections, a.Summary.Connections))
	})
	first := services[:min(len(services), summedServices)]
	c.printf("\n%s backends in %s services, %s of them down (--all, or name services)\n\n", group(uint64(countBackends(st))), group(uint64(all)), group(uint64(down)))
	showServiceSummary(c, first, false)
	if more := all - len(first); more > 0 {
		c.printf("%s more services\n", group(uint64(more)))
	}
	for _, cause := range causes[:min(len(causes), shownDown)] {
		c.printf("  %s\n", c.paint(red, cause))
	}
}

// causeOf formats why a backend is down.
func causeOf(b *l4control.BackendStatus) string {
	if len(b.Down) == 0 {
		return ""
	}
	return ": " + b.Down[0].Cause
}
