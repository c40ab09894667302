package main

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/gateway/admin"
)

const upgradeLong = `Replace a running gateway by another process: of the program that is installed now,
or of --binary, with the file that it has, or with --config. The new process takes
the listening sockets, so that no connection is refused, and serves; then the old
one accepts nothing more. Its connections go on for --drain, or for timeouts.drain of
their listeners: HTTP/1.1 gets "Connection: close", HTTP/2 and 3 GOAWAY, WebSockets last
until the end of that time. Drains and weights that were set by command stay.

If the new process refuses the file, crashes, hangs, or ends within a second, the
old one goes on, and the reason is printed: exit code 3 for errors of the file.

--rollback returns to the program that the running one has replaced, also if its
file has been overwritten, with the path of its configuration file. Put the old
contents of that file back first.

--if-needed only reloads, where that suffices: the program is the same, and no key
that a reload refuses has changed. The systemd unit reloads in this way.

Devices are closed by the old process and opened by the new one, which takes the
connections of services: their packets are lost for a fraction of a second.
docs/upgrading.md has the details, and what cannot be handed over.

--json prints one object: schema, pid and version (of the new process), drain (how
long the old one goes on at most), gap (how long the devices had no process),
connections and lost (of services: how many the new process has, and has not, by the
reason), reloaded (with --if-needed: a reload sufficed), and changes (as reload
--json, of that reload).`

func newGatewayUpgrade(c *console) *cobra.Command {
	var u admin.Upgrade
	var drain time.Duration
	cmd := newControl(c, &cobra.Command{
		Use:   "upgrade",
		Short: "Replace a running gateway without a refused connection",
		Long:  upgradeLong,
		Example: `  millrace gateway upgrade
  millrace gateway upgrade --binary /opt/millrace-next/millrace --drain 10m
  millrace gateway upgrade --config /etc/millrace/next.yaml
  millrace gateway upgrade --rollback`,
		Args: exactly(),
	}, func(ctx context.Context, g *admin.Client, f *control, _ []string) error {
		if drain < 0 {
			return usage("--drain %v is negative", drain)
		}
		if u.Rollback && (u.Binary != "" || u.Config != "" || u.IfNeeded) {
			return usage("--rollback returns to the program and the file of before: --binary, --config and --if-needed are for others")
		}
		u.Drain = admin.Duration(drain)
		for _, path := range []*string{&u.Binary, &u.Config} {
			if *path == "" {
				continue
			}
			abs, err := filepath.Abs(*path)
			if err != nil {
				return err
			}
			*path = abs
		}
		res, err := g.Upgrade(ctx, u)
		if err != nil {
			return err
		}
		if f.json {
			return c.jsonLine(res)
		}
		if res.Reloaded {
			c.printf("a reload sufficed: the new configuration is in use\n")
			printChanges(c, res.Changes.List, len(res.Changes.List)+res.Changes.More)
			return nil
		}
		c.printf("process %d, millrace %s, serves", res.PID, res.Version)
		if res.Drain > 0 {
			c.printf("; the old one ends with its connections, after %v at the latest", time.Duration(res.Drain))
		}
		c.printf("\n")
		if res.Gap > 0 {
			c.printf("the devices had no process for %v; %s connections of services go on\n", time.Duration(res.Gap).Round(time.Millisecond), group(uint64(res.Connections)))
		}
		for _, why := range slices.Sorted(maps.Keys(res.Lost)) {
			c.printf("  %s do not: %s\n", group(uint64(res.Lost[why])), why)
		}
		return nil
	})
	fl := cmd.Flags()
	fl.StringVar(&u.Binary, "binary", "", "program to start (default: that of the gateway, as it is installed now)")
	fl.StringVar(&u.Config, "config", "", "configuration file (default: that of the gateway)")
	fl.BoolVar(&u.Rollback, "rollback", false, "return to the program and the file of before the last upgrade")
	fl.BoolVar(&u.IfNeeded, "if-needed", false, "only reload, where that suffices")
	fl.DurationVar(&drain, "drain", 0, "how long connections may stay with the old process (default: timeouts.drain)")
	completeFiles(cmd, "config", "yaml", "yml")
	return cmd
}
