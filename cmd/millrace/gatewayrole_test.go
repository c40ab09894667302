package main

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/l4/role"
	"github.com/millrace/millrace/l4/rolelink"
)

// The role of two gateways, as status and role print it.
func TestTheRoleIsShown(t *testing.T) {
	at := netip.MustParseAddrPort("198.18.9.2:3780")
	well := rolelink.Status{
		State: role.Active, Priority: 100, Last: rolelink.Change{Why: "no host answers for the addresses", At: time.Now().Add(-time.Minute)}, Lease: 1, Left: 0.7, Able: true,
		Peer:  rolelink.Peer{Heard: true, State: role.Standby, Priority: 90, Able: true, Synced: true, Silent: 0.042},
		Paths: []rolelink.PathStatus{{Peer: at, Up: true}},
	}
	for _, c := range []struct {
		change func(*rolelink.Status)
		want   []string
	}{
		{func(*rolelink.Status) {}, []string{"active, priority 100; for 1m0s: no host answers", "standby, priority 90, heard 42ms ago; lease 1s, 700ms left; split brains 0"}},
		{func(s *rolelink.Status) { s.Split, s.By, s.Splits = true, "02:00:00:00:00:01", 3 }, []string{"split brain: 02:00:00:00:00:01 answers", "split brains 3"}},
		{func(s *rolelink.Status) { s.State, s.HeldOff = role.Probing, true }, []string{"probing, held off: the other gateway answers"}},
		{func(s *rolelink.Status) { s.State, s.Held = role.Standby, true }, []string{"standby, on an operator's order"}},
		{func(s *rolelink.Status) { s.Peer.Heard = false }, []string{"not heard"}},
		{func(s *rolelink.Status) { s.Peer.Able, s.Peer.Synced = false, false }, []string{"a device has no link", "lacks connections"}},
		{func(s *rolelink.Status) { s.Paths[0].Up = false }, []string{"198.18.9.2:3780: not heard there"}},
		{func(s *rolelink.Status) { s.Differ = true }, []string{"the file of the other gateway has other service or SNAT addresses"}},
		{func(s *rolelink.Status) { s.Able = false }, []string{"a device of this gateway has no link"}},
	} {
		st := well
		st.Paths = []rolelink.PathStatus{well.Paths[0]}
		c.change(&st)
		socket := scriptedGateway(t, 0, func(int) admin.Status {
			all := statusWith(config.StateActive, 1)
			all.Role, all.Engine.Name = &st, "cpu"
			return all
		})
		for _, command := range []string{"status", "role"} {
			code, out, _ := run("gateway", command, "--socket", socket)
			for _, want := range c.want {
				if code != exitOK || !strings.Contains(out, want) {
					t.Errorf("%s: code %d, no %q in\n%s", command, code, want, out)
				}
			}
		}
	}
}
