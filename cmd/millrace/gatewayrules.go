package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/l4/inspection"
)

const rulesLong = `Show the inspection of a running gateway: each policy with what it has inspected and
dropped, and the rules that have matched, those with the most matches first. Matches
count those that a threshold kept back, too; drops are alerts whose packet was dropped.
Counters go on over reloads.

--json prints one object: schema, policies (list of name, mode, rules, access, skipped,
compile_ms, request_rules, not_of_requests, requests, packets, bytes, dropped, blocked, rejected, bounds, overload, discarded,
anomalies, shortened, captured, searched, searched_again, marked: packets by mark), rules (list of policy, gid, sid,
rev, msg, action, matches, alerts, drops), more_rules, alerts_dropped, alerts_failed,
packets_written, packets_dropped.`

func newGatewayRules(c *console) *cobra.Command {
	var limit int
	cmd := newControl(c, &cobra.Command{
		Use:   "rules",
		Short: "Show inspection policies, and the rules that have matched",
		Long:  rulesLong,
		Example: `  millrace gateway rules
  millrace gateway rules --limit 1000 --json | jq '.rules[] | select(.drops > 0)'`,
		Args: exactly(),
	}, func(ctx context.Context, g *admin.Client, f *control, _ []string) error {
		s, err := g.Rules(ctx, limit)
		switch {
		case err != nil:
			return err
		case f.json:
			return c.jsonLine(s)
		}
		return showRules(c, &s)
	})
	cmd.Flags().IntVar(&limit, "limit", 50, "rules to show at most")
	complete(cmd, "limit", cobra.NoFileCompletions)
	return cmd
}

// showRules prints the policies and the rules.
func showRules(c *console, s *inspection.Status) error {
	if len(s.Policies) == 0 {
		c.printf("nothing is inspected: the configuration has no policies\n")
		return nil
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "POLICY\tMODE\tRULES\tREQUESTS\tPACKETS\tDROPPED\tBLOCKED\tBOUNDS\tDISCARDED\tANOMALIES")
	for i := range s.Policies {
		p := &s.Policies[i]
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", p.Name, p.Mode, p.Rules+p.Access, p.Inspected, p.Packets, p.Dropped+p.Overload, p.Blocked, p.Bounds,
			p.Discarded, p.Anomalies)
	}
	if len(s.Rules) > 0 {
		fmt.Fprintln(w, "\nPOLICY\tRULE\tACTION\tMATCHES\tALERTS\tDROPS\tMESSAGE")
	}
	for _, r := range s.Rules {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\t%s\n", r.Policy, r.ID(), r.Action, r.Matches, r.Alerts, r.Drops, strings.Map(shown, r.Msg))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if s.More > 0 {
		c.printf("... and %d more rules\n", s.More)
	}
	for _, p := range s.Policies {
		if len(p.Skipped) > 0 {
			c.printf("policy %s leaves out rules with %s\n", p.Name, strings.Join(byCount(p.Skipped), ", "))
		}
		if len(p.NotOfRequests) > 0 {
			c.printf("policy %s: %d of %d rules apply to requests; others are about %s\n", p.Name, p.Requests, p.Rules, strings.Join(byCount(p.NotOfRequests), ", "))
		}
	}
	if lost := s.AlertsDropped + s.AlertsFailed; lost > 0 {
		c.printf("%d alerts were not written\n", lost)
	}
	return nil
}

// shown replaces characters that a terminal could interpret, those of C1 included: messages come from files of others, and names from
// their requests.
func shown(r rune) rune {
	if r < ' ' || r >= 0x7f && r < 0xa0 {
		return '?'
	}
	return r
}
