package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/gateway/config"
	l4control "github.com/millrace/millrace/l4/control"
)

// statusFlags are the flags of gateway status.
type statusFlags struct {
	all, summary bool
	services     []string
	backend      string
	limit        int
	watch        time.Duration // 0 is once
	schema       int           // of --json

	// The picture before, for rates, with --watch.
	before *admin.Status
	at     time.Time
}

func newGatewayStatus(c *console) *cobra.Command {
	var sf statusFlags
	cmd := newControl(c, &cobra.Command{
		Use:   "status [SERVICE...]",
		Short: "Show a running gateway, its services, pools and backends",
		Long: `Show a running gateway: each service with its backends, their state, health,
connections and traffic, the drops by reason, and the engine: the share of each
back end, their calibration, and the fault of a GPU; the listeners, and each pool
with its backends and their responses. With names only these services and pools
are shown. Of more than 50 services those with backends that are down come
first, then those with the most connections, and the others are counted. Of more than
100 backends it shows a screen: the sums of 20 services, and of 20 pools; --all shows
all. --backend shows the backends of one name, and --limit at most so many backends;
the gateway sends no others. --summary shows one line for each service, and their
sum: how many of its backends take new connections, connections, packets, drops.
The gateway sends the sums, also with --json: "summary" in place of backends.

--watch repeats it every 2 seconds, or at another interval: --watch=500ms. From the
second time on it begins with rates: of the gateway, and of the 20 backends with the
most traffic. On a terminal the screen is redrawn; elsewhere an empty line separates
the outputs. Ctrl-C ends it with exit code 0.

--json prints one object: schema, version, config, started, reload, counts,
engine, gateway, kernel_programs, and http (listeners, pools, counts) where there are
listeners, bgp where addresses are announced; docs/gateway.md lists their keys. With --watch
it is one per line. Members that are false, 0, "", null or an object without members are
left out (in jq a missing key is null: .connections // 0), and so are slow_start_percent
of 100, next_hop "ready", and what the file says of the state and weight of a backend
where these are as it says; --schema 1 has them all.`,
		Example: `  millrace gateway status
  millrace gateway status web --watch
  millrace gateway status --summary
  millrace gateway status --json --service web --backend b1
  millrace gateway status --json | jq '.gateway.services[].backends[] | select(.healthy | not)'`,
		ValidArgsFunction: serviceNames,
	}, func(ctx context.Context, g *admin.Client, f *control, args []string) error {
		if sf.watch == 0 {
			return sf.show(ctx, c, g, args, f.json)
		}
		if sf.watch < minWatch {
			return usage("--watch=%v: say %v or more", sf.watch, minWatch)
		}
		return c.watch(ctx, sf.watch, f.json, func(ctx context.Context) error { return sf.show(ctx, c, g, args, f.json) })
	})
	sf.add(cmd)
	return cmd
}

// add adds the flags to the command.
func (sf *statusFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.BoolVar(&sf.all, "all", false, "show all services, however many")
	fl.StringArrayVar(&sf.services, "service", nil, "only this service, as the argument `NAME`; may be repeated")
	fl.StringVar(&sf.backend, "backend", "", "only backends of this `NAME`")
	fl.IntVarP(&sf.limit, "limit", "n", 0, "at most `N` backends; 0 is all")
	completeConnections(cmd)
	fl.BoolVar(&sf.summary, "summary", false, "show one line for each service, and their sum")
	fl.DurationVar(&sf.watch, "watch", 0, "repeat it every `TIME`")
	fl.Lookup("watch").NoOptDefVal = defaultWatch.String()
	fl.IntVar(&sf.schema, "schema", briefSchema, "`N` of the document of --json: 1 has every key")
}

// show prints the status once.
func (sf *statusFlags) show(ctx context.Context, c *console, g *admin.Client, args []string, asJSON bool) error {
	if sf.limit < 0 {
		return usage("--limit %d: say 1 or more, or 0 for all", sf.limit)
	}
	if err := checkSchema(sf.schema, asJSON); err != nil {
		return err
	}
	names := append(slices.Clone(sf.services), args...)
	sel := l4control.Selection{Services: names, Backend: sf.backend, Limit: sf.limit, Summary: sf.summary}
	if !asJSON && !sf.summary && !sf.all && len(names) == 0 && sf.limit == 0 {
		sel.Foremost = maxServices
	}
	st, reply, err := sf.ask(ctx, g, sel, asJSON)
	if e := new(admin.Error); sf.watch != 0 && len(args) > 0 && (err == nil || errors.As(err, &e) && e.Code == http.StatusNotFound) {
		last := args[len(args)-1]
		shown := slices.ContainsFunc(st.Gateway.Services, func(s l4control.ServiceStatus) bool { return s.Name == last })
		if d, not := time.ParseDuration(last); not == nil && !shown {
			return usage("an interval follows with an equals sign: --watch=%v", d)
		}
	}
	if err != nil {
		return err
	}
	if asJSON {
		return c.status(reply, sf.schema, sf.watch != 0)
	}
	if now := time.Now(); sf.watch != 0 {
		ratesOf(&st, sf.before, now.Sub(sf.at)).show(c)
		sf.before, sf.at = &st, now
	}
	if sf.summary {
		showSummary(c, &st)
		return nil
	}
	showStatus(c, &st, sf.all || len(names) > 0, sf.limit > 0)
	return nil
}

// ask asks a gateway for its status. For --json it is needed as JSON alone, unless names may be an interval of --watch.
func (sf *statusFlags) ask(ctx context.Context, g *admin.Client, sel l4control.Selection, asJSON bool) (st admin.Status, reply json.RawMessage, err error) {
	if !asJSON {
		st, err = g.Status(ctx, sel)
		return st, nil, err
	}
	if reply, err = g.StatusJSON(ctx, sel); err == nil && sf.watch != 0 && len(sel.Services) > 0 {
		err = json.Unmarshal(reply, &st)
	}
	return st, reply, err
}

// maxServices is the number of services that the status for people shows, unless it is asked for more.
const maxServices = 50

// showMore prints how many services and backends are not shown.
func showMore(c *console, st *l4control.Status, limited bool) {
	if st.MoreBackends == 0 {
		return
	}
	rest := fmt.Sprintf("%s of them down, %s connections", group(uint64(st.MoreDown)), group(st.MoreConnections))
	if limited {
		c.printf("\n%s more backends, %s (--limit)\n", group(uint64(st.MoreBackends)), rest)
		return
	}
	c.printf("\n%s more services: %s backends, %s (--all, or name services)\n", group(uint64(st.MoreServices)), group(uint64(st.MoreBackends)), rest)
}

// showPrograms says by which devices the kernel forwards connections, and why not by others.
func showPrograms(c *console, p *admin.KernelPrograms) {
	if len(p.Devices) == 0 {
		if p.Why != "" {
			c.line("programs", "off: %s", p.Why)
		}
		return
	}
	var list []string
	for _, d := range p.Devices {
		if d.On {
			list = append(list, d.Name+" on")
			continue
		}
		list = append(list, fmt.Sprintf("%s %s", d.Name, c.paint(yellow, "off: "+d.Why)))
	}
	c.line("programs", "%s; packets: %s", strings.Join(list, ", "), tally(p.Packets))
}

// showStatus prints the gateway as text: all of its services and pools, or a screen. A limited one has the backends of a limit.
func showStatus(c *console, st *admin.Status, all, limited bool) {
	c.line("gateway", "%s, up %s, %s", st.Version, time.Since(st.Started).Round(time.Second), st.Config)
	reload := "in use since " + st.Reload.Succeeded.Local().Format(time.DateTime)
	if st.Reload.Failed {
		reload += "; " + c.paint(red, "the last reload was rejected:")
	}
	c.line("config", "%s", reload)
	if st.Reload.Failed { // all of it: the first line may be one error of several, and not the one that matters
		for line := range strings.Lines(st.Reload.Error) {
			c.printf("  %s\n", c.paint(red, strings.TrimRight(line, "\n")))
		}
	}
	if st.Listeners != nil {
		showListeners(c, st.Listeners)
	}
	if st.Engine.Name != "" { // without devices there is none
		showPackets(c, st)
	}
	showServices(c, &st.Gateway, all, limited)
	if st.Listeners != nil {
		showPools(c, st.Listeners.Pools, all)
	}
	if limited || all || !isMany(&st.Gateway) {
		showMore(c, &st.Gateway, limited)
	}
}

// isMany reports whether a screen has no place for the backends of the services.
func isMany(st *l4control.Status) bool { return countBackends(st) > manyBackends }

// countBackends counts the backends of a status, those that it leaves out included.
func countBackends(st *l4control.Status) int {
	n := st.MoreBackends
	for i := range st.Services {
		n += len(st.Services[i].Backends)
	}
	return n
}

// showServices prints services with their backends, or without those in a screen where there are many, unless all are asked for.
func showServices(c *console, st *l4control.Status, all, limited bool) {
	if isMany(st) && !all && !limited {
		showManyServices(c, st)
		return
	}
	for i := range st.Services {
		showService(c, &st.Services[i])
	}
}

// showPackets prints what moves packets at L4.
func showPackets(c *console, st *admin.Status) {
	g := &st.Gateway
	c.line("table", "%s of %s connections: active %s, closing %s, half-open %s of %s", group(g.Connections), group(uint64(g.TableSize)),
		group(g.Active), group(g.Closing), group(g.HalfOpen), group(uint64(g.HalfOpenLimit)))
	for i := range g.SNAT[:min(len(g.SNAT), mostSNATs)] {
		showSNAT(c, &g.SNAT[i])
	}
	if p := g.Sync; p != nil {
		showSync(c, p)
	}
	if st.Role != nil {
		showRole(c, st.Role)
	}
	if k := g.Kernel; k != nil {
		c.line("kernel", "%s connections; packets to backends %s, from %s; entered %s, rejected %s; taken back %s",
			group(k.Connections), group(k.ToPackets), group(k.FromPackets), group(k.Entered), group(k.Rejected), tally(k.TakenBack))
	}
	showPrograms(c, &st.KernelPrograms)
	if st.BGP != nil {
		showBGP(c, st.BGP)
	}
	n := &st.Counts
	c.line("packets", "received %s, forwarded %s", group(n.Received), group(n.Forwarded))
	c.line("dropped", "%s", tally(n.Dropped))
	showEngine(c, &st.Engine)
	showCalibrations(c, st.Engine.Calibrations)
}

// mostSNATs is the number of SNAT addresses that the status as text has; --json has more.
const mostSNATs = 16

// showSync prints the state of the other gateway.
func showSync(c *console, p *l4control.SyncStatus) {
	state := func(up bool) string {
		if up {
			return "up"
		}
		return c.paint(red, "down")
	}
	synced := "synced"
	if !p.Synced {
		synced = c.paint(red, "not synced")
	}
	if p.Waiting {
		synced += ", announces nothing yet"
	}
	c.line("peer", "%s: %s; send %s, %s records, receive %s, %s records; dropped %s, lag %v", p.Peer, synced, state(p.Sends), group(p.SentRecords),
		state(p.Receives), group(p.ReceivedRecords), group(p.Dropped), time.Duration(p.LagSeconds*float64(time.Second)).Round(time.Microsecond))
}

func showSNAT(c *console, s *l4control.SNATStatus) {
	used := fmt.Sprintf("%d %%", s.UsedPercent)
	if s.MostUsedBy != nil {
		used += " to " + s.MostUsedBy.String()
	}
	r := &s.Reclaimed
	c.line("snat", "%s: ports open %s, closed %s; at most %s; reclaimed %s", s.Address, group(s.Open), group(s.Closed), used,
		group(r.Resting+r.Closed+r.HalfOpen))
}

func showService(c *console, s *l4control.ServiceStatus) {
	var at []string
	for _, ap := range s.Addresses {
		at = append(at, ap.String())
	}
	c.printf("\n%s %s %s %s\n", c.paint(bold, s.Name), s.Protocol, s.Mode, strings.Join(at, " "))
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  backend\taddress\tstate\tweight\thealth\tnext hop\tconns\topened\tto backend\tfrom backend")
	for i := range s.Backends {
		b := &s.Backends[i]
		health := "up"
		switch {
		case !b.Healthy:
			health = "down"
		case b.Ejected:
			health = "ejected"
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", b.Name, target(b.Address), stateOf(b), weightOf(b), health, b.NextHop,
			group(b.Connections), group(b.Opened), group(b.ToPackets), group(b.FromPackets))
	}
	_ = w.Flush()
	for i := range s.Backends {
		for _, why := range s.Backends[i].Down {
			c.printf("  %s\n", c.paint(red, fmt.Sprintf("%s is down since %s by its %s: %s", s.Backends[i].Name,
				why.Since.Local().Format(time.DateTime), map[string]string{"check": "check", "passive": "clients' connections"}[why.By], why.Cause)))
		}
	}
	if len(s.Dropped) > 0 {
		c.printf("  dropped: %s\n", tally(s.Dropped))
	}
}

// stateOf formats the state of a backend, and how an operator has changed it.
func stateOf(b *l4control.BackendStatus) string {
	switch {
	case b.Removed:
		return "removed"
	case b.OperatorDrained && b.DrainUntil != nil:
		return fmt.Sprintf("%s until %s", b.State, b.DrainUntil.Local().Format(time.TimeOnly))
	case b.State == config.StateFilling && b.SlowStartPercent < 100:
		return fmt.Sprintf("filling, %d %%", b.SlowStartPercent)
	}
	return string(b.State)
}

// weightOf formats the weight of a backend, with the configured one where an operator has changed it.
func weightOf(b *l4control.BackendStatus) string {
	if b.OperatorWeight {
		return fmt.Sprintf("%d (file: %d)", b.Weight, b.ConfigWeight)
	}
	return fmt.Sprint(b.Weight)
}

// target writes the address of a backend, which has no port in direct modes.
func target(ap interface {
	Addr() netip.Addr
	Port() uint16
	String() string
},
) string {
	if ap.Port() == 0 {
		return ap.Addr().String()
	}
	return ap.String()
}

func newGatewayConnections(c *console) *cobra.Command {
	var q admin.Query
	var client string
	cmd := &cobra.Command{
		Use:   "connections",
		Short: "List the connections of a running gateway",
		Long: `List the connections of a running gateway. Of services: client, service and
backend, the source address towards the backend, the state, and when the entry
expires without another packet. Of listeners: client, listener, protocol, the
state (opening, idle, active with requests, passed through), and the pool and
backend of the request in progress, or of the connection that is passed through.
The tables are read in small pieces between packets; a connection that opens or
ends meanwhile may be missing. --service names a service, a pool or a listener.

--json prints an object for each connection, one per line: schema, loop, service
(of listeners: the pool), protocol, client, address, backend, target, source,
state, kernel (true where the kernel forwards the connection), expires_seconds;
of listeners also listener, requests (so far) and active_requests.`,
		Example: `  millrace gateway connections --service web --backend b1
  millrace gateway connections --client 198.18.0.0/24 --limit 10
  millrace gateway connections --json | jq -r .backend | sort | uniq -c`,
		Args: exactly(),
	}
	newControl(c, cmd, func(ctx context.Context, g *admin.Client, f *control, _ []string) error {
		if client != "" {
			p, err := admin.ParseClient(client)
			if err != nil {
				return usage("--client %q: say an address or a prefix", client)
			}
			q.Client = p
		}
		if q.Limit < 0 {
			return usage("--limit %d: say 1 or more, or 0 for all", q.Limit)
		}
		return listConnections(ctx, c, g, &q, f.json)
	})
	fl := cmd.Flags()
	fl.StringVar(&q.Service, "service", "", "only of this service, pool or listener")
	fl.StringVar(&q.Backend, "backend", "", "only of backends of this name")
	fl.StringVar(&client, "client", "", "only from this address or prefix")
	fl.IntVarP(&q.Limit, "limit", "n", 0, "at most this many; 0 is all")
	completeConnections(cmd)
	return cmd
}

// showClient prints the connection of a client to a listener. Its backend is that of what is in progress.
func showClient(c *console, columns string, one *admin.Connection) {
	name, to := one.Listener, "-"
	if one.Service != "" {
		name += " " + one.Service
	}
	if one.Target.IsValid() {
		to = one.Target.String()
	}
	state := one.State
	if one.Active > 1 {
		state += fmt.Sprintf(" (%d)", one.Active)
	}
	c.printf(columns, cmp.Or(one.Protocol, "-"), name, one.Client, one.Address, cmp.Or(one.Backend, "-"), to, "-", state, "-")
}

// listConnections prints connections as the gateway sends them.
func listConnections(ctx context.Context, c *console, g *admin.Client, q *admin.Query, asJSON bool) error {
	const columns = "%-5s %-12s %-26s %-24s %-12s %-24s %-24s %-18s %8s\n"
	var failed error
	n := 0
	err := g.Connections(ctx, *q, func(one admin.Connection) bool {
		if asJSON {
			failed = c.jsonLine(one)
			return failed == nil
		}
		if n == 0 {
			c.printf("%s", c.paint(bold, fmt.Sprintf(columns, "proto", "service", "client", "address", "backend", "target", "source", "state", "expires")))
		}
		n++
		if one.Listener != "" {
			showClient(c, columns, &one)
			return true
		}
		source := "the client"
		if one.Source != nil {
			source = one.Source.String()
		}
		state := one.State
		if one.Kernel {
			state += " kernel"
		}
		c.printf(columns, one.Protocol, one.Service, one.Client, one.Address, one.Backend, target(one.Target), source, state,
			time.Duration(one.Expires*float64(time.Second)).Round(time.Second))
		return true
	})
	if err == nil && failed == nil && !asJSON {
		c.printf("%s connections\n", group(uint64(n)))
	}
	if err != nil {
		return err
	}
	return failed
}
