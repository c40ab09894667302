package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/l7/topk"
)

// topKinds are the blocks of top, with their headings, in their order.
var topKinds = []struct {
	name string
	of   func(*admin.Top) []topk.Entry
}{
	{"routes", func(t *admin.Top) []topk.Entry { return t.Routes }},
	{"hosts", func(t *admin.Top) []topk.Entry { return t.Hosts }},
	{"paths", func(t *admin.Top) []topk.Entry { return t.Paths }},
	{"clients", func(t *admin.Top) []topk.Entry { return t.Clients }},
	{"backends", func(t *admin.Top) []topk.Entry { return t.Backends }},
}

type topFlags struct {
	interval time.Duration
	rows     int
	by       []string
	once     bool
}

func newGatewayTop(c *console) *cobra.Command {
	var tf topFlags
	var words []string
	for _, k := range topKinds {
		words = append(words, k.name)
	}
	cmd := newControl(c, &cobra.Command{
		Use:   "top",
		Short: "Show the routes, clients, paths and backends with the most requests",
		Long: `Count the requests that a running gateway ends, and show the routes, hosts, paths,
clients and backends with the most of them, and the backends of services with the
most packets: again and again, for --interval each. On a terminal the screen is
redrawn; elsewhere an empty line separates the outputs. Ctrl-C ends it with exit
code 0. --once shows one interval.

The gateway counts in bounded memory, and only while it is asked to: a count behind
"<" may be less, by what --json has as error. Paths have no queries.

--json prints one object, or one per line without --once: schema, interval_seconds,
requests, failed, stages (requests, wait_seconds, backend_seconds, response_seconds:
sums over requests that a backend has answered), and the lists routes, hosts,
paths, clients, backends (name, requests, error, failed, bytes_out, seconds,
per_second) and services (service, backend, opened_per_second, packets_per_second,
bytes_per_second).`,
		Example: `  millrace gateway top
  millrace gateway top --by clients,paths --rows 20
  millrace gateway top --once --json | jq -r '.clients[0].name'`,
		Args: exactly(),
	}, func(ctx context.Context, g *admin.Client, f *control, _ []string) error {
		if tf.interval < topk.MinTime || tf.interval > topk.MaxTime {
			return usage("--interval %v: say %v to %v", tf.interval, topk.MinTime, topk.MaxTime)
		}
		if tf.rows < 1 || tf.rows > topk.MaxRows {
			return usage("--rows %d: say 1 to %d", tf.rows, topk.MaxRows)
		}
		for _, by := range tf.by {
			if !slices.Contains(words, by) {
				return usage("--by %s: say some of %s", by, strings.Join(words, ", "))
			}
		}
		if tf.once {
			return tf.show(ctx, c, g, f.json)
		}
		return c.watch(ctx, tf.interval, f.json, func(ctx context.Context) error { return tf.show(ctx, c, g, f.json) })
	})
	fl := cmd.Flags()
	fl.DurationVar(&tf.interval, "interval", admin.TopTime, "how long requests are counted")
	fl.IntVarP(&tf.rows, "rows", "n", admin.TopRows, "rows of each kind")
	fl.StringSliceVar(&tf.by, "by", nil, "only these `KINDS`: "+strings.Join(words, ", "))
	fl.BoolVar(&tf.once, "once", false, "show one interval, and end")
	completeWords(cmd, "by", words...)
	complete(cmd, "interval", cobra.NoFileCompletions)
	complete(cmd, "rows", cobra.NoFileCompletions)
	return cmd
}

// show counts once and prints the result.
func (tf *topFlags) show(ctx context.Context, c *console, g *admin.Client, asJSON bool) error {
	t, err := g.Top(ctx, tf.interval, tf.rows)
	switch {
	case err != nil:
		return err
	case asJSON && tf.once:
		return c.json(t)
	case asJSON:
		return c.jsonLine(t)
	}
	return tf.print(c, &t)
}

func (tf *topFlags) print(c *console, t *admin.Top) error {
	c.printf("%s requests/s, %s failed/s, over %.1f s\n", perSecond(float64(t.Requests)/t.Seconds), perSecond(float64(t.Failed)/t.Seconds), t.Seconds)
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	for _, k := range topKinds {
		if list := k.of(t); len(list) > 0 && (len(tf.by) == 0 || slices.Contains(tf.by, k.name)) {
			fmt.Fprintf(w, "\n%s\trequests/s\tfailed/s\tbytes/s\tmean ms\n", strings.ToUpper(k.name))
			for i := range list {
				c.printEntry(w, &list[i], t.Seconds)
			}
		}
	}
	if len(t.Services) > 0 && len(tf.by) == 0 {
		fmt.Fprint(w, "\nSERVICES\tpackets/s\topened/s\tbytes/s\n")
		for _, s := range t.Services {
			fmt.Fprintf(w, "%s/%s\t%s\t%s\t%s\n", s.Service, s.Backend, perSecond(s.Packets), perSecond(s.Opened), perSecond(s.Bytes))
		}
	}
	return w.Flush()
}

// nameWidth bounds the names of top where the output is no terminal; on one, they have what the other columns leave.
const (
	nameWidth   = 120
	otherWidths = 48
)

func (c *console) printEntry(w *tabwriter.Writer, e *topk.Entry, seconds float64) {
	width := nameWidth
	if c.width > 0 {
		width = max(c.width-otherWidths, 16)
	}
	name := []rune(strings.Map(shown, e.Name))
	if len(name) > width {
		name = append(name[:width-3], []rune("...")...)
	}
	sign := ""
	if e.AtMost > e.Requests/20 {
		sign = "<"
	}
	fmt.Fprintf(w, "%s\t%s%s\t%s\t%s\t%.1f\n", string(name), sign, perSecond(e.Rate), perSecond(float64(e.Failed)/seconds), perSecond(float64(e.Bytes)/seconds), 1000*e.Mean)
}
