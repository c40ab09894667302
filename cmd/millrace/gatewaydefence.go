package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/gateway/defence"
)

func newGatewayDefence(c *console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "defence",
		Short: "List, add and remove verdicts on sources in XDP",
		Long: `List, add and remove verdicts on sources, which a running gateway with "defence" in its
configuration drops or limits in XDP.`,
		Example: `  millrace gateway defence list
  millrace gateway defence add 192.0.2.7 --time 10m
  millrace gateway defence remove 192.0.2.7`,
		Args: unknownCommand,

		SuggestionsMinimumDistance: 2,
		RunE:                       showHelp,
	}
	cmd.AddCommand(newDefenceList(c), newDefenceAdd(c), newDefenceRemove(c))
	return cmd
}

// sourceOf parses the argument of a command: an address, or a prefix.
func sourceOf(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return p, usage("%q is not an address or a prefix, such as 192.0.2.7 or 2001:db8::/64", s)
	case p != p.Masked():
		return p, usage("%s has bits beyond its length; write %s", p, p.Masked())
	}
	return p, nil
}

// sourcesOf parses the arguments of a command.
func sourcesOf(args []string) ([]netip.Prefix, error) {
	sources := make([]netip.Prefix, len(args))
	for i, a := range args {
		var err error
		if sources[i], err = sourceOf(a); err != nil {
			return nil, err
		}
	}
	return sources, nil
}

// forEach calls f for each source, until one fails.
func forEach(sources []netip.Prefix, f func(netip.Prefix) error) error {
	for i, p := range sources {
		err := ofDefence(f(p))
		switch {
		case err != nil && len(sources) > 1:
			return fmt.Errorf("%s, after %d of %d sources: %w", p, i, len(sources), err)
		case err != nil:
			return err
		}
	}
	return nil
}

// ofDefence explains a 404 of a gateway that knows no defence.
func ofDefence(err error) error {
	if e := new(admin.Error); errors.As(err, &e) && e.Code == http.StatusNotFound && strings.HasPrefix(e.Message, "no ") {
		return fmt.Errorf("the running gateway is of an older version, which has no defence: %w", err)
	}
	return err
}

func newDefenceList(c *console) *cobra.Command {
	return newControl(c, &cobra.Command{
		Use:   "list",
		Short: "List the verdicts in force, and what rules have dropped",
		Long: `List the devices with the defence, the verdicts in force beyond the configuration's
lists, and the packets that each rule has dropped since the start.

--json prints one object: schema, devices (list of name, on, how, why), verdicts (list
of source, action, packets_per_second, rule, since, seconds_left; without seconds_left
until it is removed), rules (list of rule, verdicts, dropped_packets, dropped_bytes),
listed (prefixes of lists), max_verdicts, answered_syns, refused_verdicts (by reason).`,
		Example: `  millrace gateway defence list
  millrace gateway defence list --json | jq -r '.verdicts[].source'`,
		Args: exactly(),
	}, func(ctx context.Context, g *admin.Client, f *control, _ []string) error {
		st, err := g.Defence(ctx)
		if err != nil {
			return ofDefence(err)
		}
		if f.json {
			return c.jsonLine(st)
		}
		showDefence(c, &st)
		return nil
	})
}

// showDefence prints devices, verdicts and rules.
func showDefence(c *console, st *defence.Status) {
	for _, d := range st.Devices {
		how := d.How
		if !d.On {
			how = c.paint(red, "off: "+d.Why)
		}
		c.line("device", "%s %s", d.Name, how)
	}
	c.line("verdicts", "%s of at most %s; prefixes of lists: %s", group(uint64(len(st.Verdicts))), group(uint64(st.Max)), group(uint64(st.Listed)))
	for why, n := range st.Refused {
		if n > 0 {
			c.line("refused", "%s verdicts: %s", group(n), why)
		}
	}
	if st.Answered > 0 {
		c.line("answered", "%s SYNs with cookies", group(st.Answered))
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	if len(st.Verdicts) > 0 {
		fmt.Fprintln(w, "\nsource\taction\trule\tleft")
	}
	for i := range st.Verdicts {
		v := &st.Verdicts[i]
		action, left := v.Action, "until it is removed"
		if v.Packets > 0 {
			action += fmt.Sprintf(" %s/s", group(uint64(v.Packets)))
		}
		if v.Left > 0 {
			left = time.Duration(v.Left * float64(time.Second)).Round(time.Second).String()
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", v.Source, action, v.Rule, left)
	}
	_ = w.Flush()
	if len(st.Rules) > 0 {
		fmt.Fprintln(w, "\nrule\tverdicts\tdropped packets\tbytes")
	}
	for _, r := range st.Rules {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", r.Rule, r.Verdicts, group(r.Packets), group(r.Bytes))
	}
	_ = w.Flush()
}

func newDefenceAdd(c *console) *cobra.Command {
	var v admin.DefenceVerdict
	var d time.Duration
	cmd := &cobra.Command{
		Use:   "add SOURCE...",
		Short: "Drop or limit the packets of sources",
		Long: `Drop the packets of sources, addresses or prefixes, in XDP, or limit them with
--packets. The verdicts are in force when the command returns, and end after --time,
with remove, or with the gateway. Sources that the configuration accepts, or has in a
list, are refused, and those behind them on the command line are not added.

--json prints one object: schema.`,
		Example: `  millrace gateway defence add 192.0.2.7
  millrace gateway defence add 2001:db8::/64 --packets 1000 --time 10m --rule scan
  millrace gateway defence add 198.51.100.0/24 --forever
  xargs -a sources.txt millrace gateway defence add --time 1h`,
		Args:              someOf("SOURCE"),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	newControl(c, cmd, func(ctx context.Context, g *admin.Client, f *control, args []string) error {
		switch {
		case v.Packets < 0 || v.Burst < 0 || d < 0:
			return usage("--packets, --burst and --time cannot be negative")
		case v.Burst > 0 && v.Packets == 0:
			return usage("--burst is of a limit; give --packets, too")
		case v.Forever && d != 0:
			return usage("--forever and --time exclude each other")
		}
		v.Time = admin.Duration(d)
		sources, err := sourcesOf(args)
		if err != nil {
			return err
		}
		err = forEach(sources, func(p netip.Prefix) error {
			v.Source = p
			return g.AddVerdict(ctx, v)
		})
		if err != nil {
			return err
		}
		whose, done := sources[0].String(), "dropped"
		if len(sources) > 1 {
			whose = group(uint64(len(sources))) + " sources"
		}
		if v.Packets > 0 {
			done = "limited"
		}
		return f.done(c, "packets of %s are %s", whose, done)
	})
	fl := cmd.Flags()
	fl.IntVar(&v.Packets, "packets", 0, "packets a second that each source may send (default: none)")
	fl.IntVar(&v.Burst, "burst", 0, "packets at once (default: a tenth of a second's)")
	fl.DurationVar(&d, "time", 0, "how long (default: defence.time of the configuration)")
	fl.BoolVar(&v.Forever, "forever", false, "until it is removed, or the gateway ends")
	fl.StringVar(&v.Rule, "rule", "", "word that counts it, behind \"operator\"")
	return cmd
}

func newDefenceRemove(c *console) *cobra.Command {
	return newControl(c, &cobra.Command{
		Use:   "remove SOURCE...",
		Short: "Take verdicts back",
		Long: `Take the verdicts on sources back, the operator's or the gateway's. What a list of the
configuration says is changed there.

--json prints one object: schema.`,
		Example:           `  millrace gateway defence remove 192.0.2.7`,
		Args:              someOf("SOURCE"),
		ValidArgsFunction: cobra.NoFileCompletions,
	}, func(ctx context.Context, g *admin.Client, f *control, args []string) error {
		sources, err := sourcesOf(args)
		if err != nil {
			return err
		}
		err = forEach(sources, func(p netip.Prefix) error {
			return g.RemoveVerdict(ctx, admin.DefenceSource{Source: p})
		})
		switch {
		case err != nil:
			return err
		case len(sources) > 1:
			return f.done(c, "verdicts on %s sources are removed", group(uint64(len(sources))))
		}
		return f.done(c, "the verdict on %s is removed", sources[0])
	})
}
