package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/app/stackd"
)

func newNet(c *console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "net",
		Short: "Show the state of a running stack",
		Long: `Show the state of a host that stack up runs: its addresses, routes and neighbours
as ip(8) does, its sockets as ss(8) does, and its counters.`,
		Example: `  millrace net addr
  millrace net sockets -t -i`,
		Args: unknownCommand,

		SuggestionsMinimumDistance: 2,
		RunE:                       showHelp,
	}
	cmd.AddCommand(newNetAddr(c), newNetRoute(c), newNetNeigh(c), newNetSockets(c), newNetStats(c))
	return cmd
}

// netControl are the flags of the commands that ask a running stack.
type netControl struct {
	socket    string
	json      bool
	four, six bool
}

// newNetControl completes a command that asks a running stack: do does its work.
func newNetControl(c *console, cmd *cobra.Command, do func(ctx context.Context, s *stackd.Client, f *netControl) error) *cobra.Command {
	var f netControl
	socketFlag(cmd, &f.socket, stackd.DefaultSocket, "unix socket")
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON")
	f.families(cmd)
	cmd.RunE = command(func(ctx context.Context, _ []string) error {
		err := do(ctx, stackd.NewClient(f.socket), &f)
		if err != nil && ctx.Err() != nil {
			return errors.New("interrupted")
		}
		return err
	})
	return cmd
}

// families adds the flags that select an address family.
func (f *netControl) families(cmd *cobra.Command) {
	if slices.Contains([]string{"down", "reload", "stats"}, cmd.Name()) {
		return
	}
	cmd.Flags().BoolVarP(&f.four, "ipv4", "4", false, "only IPv4")
	cmd.Flags().BoolVarP(&f.six, "ipv6", "6", false, "only IPv6")
	cmd.MarkFlagsMutuallyExclusive("ipv4", "ipv6")
}

// The documents of --json have their lists under a key.
type (
	addrList struct {
		Addresses []stackd.AddrReport `json:"addresses"`
	}
	routeList struct {
		Routes []stackd.RouteReport `json:"routes"`
	}
	neighList struct {
		Neighbors []stackd.NeighReport `json:"neighbors"`
	}
)

// family returns 4, 6 or 0 for both.
func (f *netControl) family() int {
	switch {
	case f.four:
		return 4
	case f.six:
		return 6
	}
	return 0
}

// wants reports whether addresses of a family are selected.
func (f *netControl) wants(is4 bool) bool { return f.family() == 0 || is4 == f.four }

// keep returns the items that want selects; never nil, so that JSON has a list.
func keep[T any](list []T, want func(*T) bool) []T {
	out := []T{}
	for i := range list {
		if want(&list[i]) {
			out = append(out, list[i])
		}
	}
	return out
}

func newNetAddr(c *console) *cobra.Command {
	return newNetControl(c, &cobra.Command{
		Use:   "addr",
		Short: "List the addresses of a running stack",
		Long: `List the addresses of a running stack, as ip addr does.

--json prints one object: schema, addresses (list of device, mac, mtu, link,
address, origin, state (tentative, preferred, deprecated, duplicate),
valid_seconds, preferred_seconds (null is for ever)).`,
		Example: `  millrace net addr
  millrace net addr -6 --json`,
		Args: exactly(),
	}, func(ctx context.Context, s *stackd.Client, f *netControl) error {
		list, err := s.Addrs(ctx)
		if err != nil {
			return err
		}
		list = keep(list, func(a *stackd.AddrReport) bool { return f.wants(a.Address.Addr().Is4()) })
		if f.json {
			return c.json(addrList{list})
		}
		showAddrs(c, list)
		return nil
	})
}

func newNetRoute(c *console) *cobra.Command {
	return newNetControl(c, &cobra.Command{
		Use:   "route",
		Short: "List the routes of a running stack",
		Long: `List the routes of a running stack, as ip route does.

--json prints one object: schema, routes (list of to, via (null is on link),
device, metric, source, origin, reject).`,
		Example: `  millrace net route
  millrace net route -4`,
		Args: exactly(),
	}, func(ctx context.Context, s *stackd.Client, f *netControl) error {
		list, err := s.Routes(ctx)
		if err != nil {
			return err
		}
		list = keep(list, func(r *stackd.RouteReport) bool { return f.wants(r.To.Addr().Is4()) })
		if f.json {
			return c.json(routeList{list})
		}
		for i := range list {
			c.printf("%s\n", routeLine(&list[i]))
		}
		return nil
	})
}

func newNetNeigh(c *console) *cobra.Command {
	var state string
	cmd := &cobra.Command{
		Use:   "neigh",
		Short: "List the neighbours of a running stack",
		Long: `List the neighbour table (ARP, neighbour discovery) of a running stack, as
ip neigh does.

--json prints one object: schema, neighbors (list of address, device, mac, state,
since_seconds, router).`,
		Example: `  millrace net neigh
  millrace net neigh --state reachable`,
		Args: exactly(),
	}
	words := []string{"incomplete", "reachable", "stale", "delay", "probe", "failed", "permanent"}
	newNetControl(c, cmd, func(ctx context.Context, s *stackd.Client, f *netControl) error {
		if state != "" && !slices.Contains(words, strings.ToLower(state)) {
			return usage("--state %q: say %s", state, strings.Join(words, ", "))
		}
		list, err := s.Neighbors(ctx)
		if err != nil {
			return err
		}
		list = keep(list, func(n *stackd.NeighReport) bool {
			return f.wants(n.Address.Is4()) && (state == "" || strings.EqualFold(state, n.State))
		})
		if f.json {
			return c.json(neighList{list})
		}
		for i := range list {
			c.printf("%s\n", neighLine(&list[i]))
		}
		return nil
	})
	cmd.Flags().StringVar(&state, "state", "", "only in this state, such as reachable or stale")
	completeWords(cmd, "state", words...)
	return cmd
}

// socketFlags are the flags of net sockets.
type socketFlags struct {
	tcp, udp, listening, details bool
	states                       []string
	port                         uint16
	limit                        int
}

// query returns the query that the flags describe.
func (f *socketFlags) query(family int) (stackd.Query, error) {
	q := stackd.Query{Family: family, Port: f.port, Limit: f.limit}
	if f.tcp {
		q.Protocol = "tcp"
	}
	if f.udp {
		q.Protocol = "udp"
	}
	states := f.states
	if f.listening {
		states = append(states, "listen", "unconn")
	}
	for _, word := range states {
		list := stackd.ParseState(word)
		if list == nil {
			return q, usage("--state %q: say %s", word, strings.ToLower(strings.Join(stackd.States, ", ")))
		}
		q.States = append(q.States, list...)
	}
	if q.Limit < 0 {
		return q, usage("--limit %d: say 1 or more", q.Limit)
	}
	return q, nil
}

func newNetSockets(c *console) *cobra.Command {
	var sel socketFlags
	cmd := &cobra.Command{
		Use:   "sockets",
		Short: "List the sockets of a running stack",
		Long: `List the sockets of a running stack, as ss does: all of them, or those that the
flags select. Half-open connections and those in TIME-WAIT are not sockets: net
stats counts them.

States: listen, syn-sent, syn-recv, estab, fin-wait-1, fin-wait-2, close-wait,
closing, last-ack, time-wait, unconn; connected is all of TCP but listen.

--json prints one object: schema, sockets (list of protocol, state,
receive_queue, send_queue, local, remote, loop, service, tcp), more (sockets
beyond --limit). tcp has what --info shows.`,
		Example: `  millrace net sockets -t --state established
  millrace net sockets -i --port 5201
  millrace net sockets --json | jq -r '.sockets[].remote'`,
		Args: exactly(),
	}
	newNetControl(c, cmd, func(ctx context.Context, s *stackd.Client, f *netControl) error {
		q, err := sel.query(f.family())
		if err != nil {
			return err
		}
		list, err := s.Sockets(ctx, q)
		if err != nil {
			return err
		}
		if f.json {
			return c.json(list)
		}
		showSockets(c, &list, sel.details)
		return nil
	})
	fl := cmd.Flags()
	fl.BoolVarP(&sel.tcp, "tcp", "t", false, "only TCP")
	fl.BoolVarP(&sel.udp, "udp", "u", false, "only UDP")
	fl.BoolVarP(&sel.listening, "listening", "l", false, "only listening and unconnected sockets")
	fl.BoolVarP(&sel.details, "info", "i", false, "show the TCP state of each connection")
	fl.StringSliceVar(&sel.states, "state", nil, "only in this state, or in these")
	fl.Uint16Var(&sel.port, "port", 0, "only with this local or remote port")
	fl.IntVarP(&sel.limit, "limit", "n", 0, "at most this many (default 10000)")
	cmd.MarkFlagsMutuallyExclusive("tcp", "udp")
	completeWords(cmd, "state", strings.Fields(strings.ToLower(strings.Join(stackd.States, " "))+" connected")...)
	return cmd
}

func newNetStats(c *console) *cobra.Command {
	return newNetControl(c, &cobra.Command{
		Use:   "stats",
		Short: "Show the counters of a running stack",
		Long: `Show the counters of a running stack since its start: packets and drops by reason,
TCP, UDP, programs of millrace exec, devices, services and the engine.

--json prints one object: schema, version, started, packets, tcp, udp, programs, devices, services,
engine.`,
		Example: `  millrace net stats
  millrace net stats --json | jq .tcp.retransmits`,
		Args: exactly(),
	}, func(ctx context.Context, s *stackd.Client, f *netControl) error {
		st, err := s.Stats(ctx)
		if err != nil {
			return err
		}
		if f.json {
			return c.json(st)
		}
		showStackStats(c, &st)
		return nil
	})
}
