package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/gateway/admin"
	l4control "github.com/millrace/millrace/l4/control"
	"github.com/millrace/millrace/l4/role"
	"github.com/millrace/millrace/l4/rolelink"
)

const roleLong = `Print which of two gateways answers for their addresses, as this one has it, or
change that: "standby" hands the addresses over to the other gateway, and "active"
asks the other one for them. The command returns when that is done. It fails, and
nothing changes, where the gateway that is to be active is not ready: it is not heard,
a device has no link, or connections are missing there.

After "standby" this gateway does not take the addresses back by its priority, even
with preempt, until "active", a restart, or the end of the other gateway (or until it
has to replace that).

--json prints one object: schema and the role of gateway status.`

// roleWords are the states that an operator can order.
var roleWords = []string{role.Active.String(), role.Standby.String()}

// aRole takes one of roleWords, or none.
func aRole(_ *cobra.Command, args []string) error {
	switch {
	case len(args) > 1:
		return usage("%q is one argument too many", args[1])
	case len(args) == 1 && !slices.Contains(roleWords, args[0]):
		return usage("%q is no role: say active or standby", args[0])
	}
	return nil
}

func newGatewayRole(c *console) *cobra.Command {
	return newControl(c, &cobra.Command{
		Use:   "role [active|standby]",
		Short: "Show or change which of two gateways is active",
		Long:  roleLong,
		Example: `  millrace gateway role
  millrace gateway role standby && systemctl restart millrace-gateway`,
		Args:      aRole,
		ValidArgs: roleWords,
	}, func(ctx context.Context, g *admin.Client, f *control, args []string) error {
		st, err := orderRole(ctx, g, args)
		if err != nil {
			return err
		}
		if f.json {
			return c.jsonLine(st)
		}
		showRole(c, st)
		return nil
	})
}

// orderRole changes the role, or reads it without arguments.
func orderRole(ctx context.Context, g *admin.Client, args []string) (*rolelink.Status, error) {
	if len(args) > 0 {
		st, err := g.SetRole(ctx, args[0])
		return &st, err
	}
	st, err := g.Status(ctx, l4control.Selection{Summary: true})
	if err == nil && st.Role == nil {
		err = fmt.Errorf("the gateway has no role: it answers for its addresses, whatever others do (sync.role gives it one)")
	}
	return st.Role, err
}

// showRole prints the role: the state, the peer, and why it has changed last.
func showRole(c *console, r *rolelink.Status) {
	state := r.State.String()
	if r.State == role.Active {
		state = c.paint(green, state)
	}
	switch {
	case r.Split:
		state += c.paint(red, ", split brain: "+orUnknown(r.By)+" answers for the addresses, too")
	case r.HeldOff && r.Rivalled:
		state += c.paint(red, ", held off: "+orUnknown(r.By)+" asks for the addresses, too")
	case r.HeldOff:
		state += c.paint(red, ", held off: "+orUnknown(r.By)+" answers for the addresses")
	case r.Held:
		state += ", on an operator's order"
	}
	c.line("role", "%s, priority %d; %s: %s", state, r.Priority, since(r.Last.At), r.Last.Why)
	peer := c.paint(red, "not heard")
	if r.Peer.Heard {
		peer = fmt.Sprintf("%v, priority %d, heard %v ago", r.Peer.State, r.Peer.Priority, seconds(r.Peer.Silent))
		if !r.Peer.Able {
			peer += c.paint(red, ", a device has no link")
		}
		if r.Peer.CutOff {
			peer += c.paint(red, ", cut off")
		}
		if !r.Peer.Synced && r.Peer.State == role.Standby {
			peer += c.paint(red, ", lacks connections")
		}
	}
	c.line("other", "%s; lease %v, %v left; split brains %d", peer, seconds(r.Lease), seconds(r.Left), r.Splits)
	for _, p := range r.Paths {
		switch {
		case p.Error != "":
			c.line("path", "%s: %s", p.Peer, c.paint(red, p.Error))
		case !p.Up && r.Peer.Heard:
			c.line("path", "%s: %s", p.Peer, c.paint(red, "not heard there"))
		}
	}
	if r.Peer.SameIndex {
		c.line("index", "%s", c.paint(red, "both gateways have the same sync.index: give one 0 and the other 1, and restart"))
	}
	if r.Differ {
		c.line("addresses", "%s", c.paint(red, "the file of the other gateway has other service or SNAT addresses"))
	}
	if !r.Able {
		c.line("link", "%s", c.paint(red, "a device of this gateway has no link"))
	}
	if r.CutOff {
		c.line("watch", "%s", c.paint(red, "none of the watched addresses answers any more"))
	}
}

func orUnknown(mac string) string {
	if mac == "" {
		return "the other gateway"
	}
	return mac
}

func since(t time.Time) string { return "for " + time.Since(t).Round(time.Second).String() }

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond)
}
