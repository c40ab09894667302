package daemon

import (
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/l4/role"
	"github.com/millrace/millrace/l4/rolelink"
)

// The dashboard has the role, and each trouble of it.
func TestTheRoleOfTheDashboard(t *testing.T) {
	if dashboardRole(nil) != nil {
		t.Error("a role without one")
	}
	well := rolelink.Status{State: role.Active, Priority: 7, Able: true, Lease: 2, Splits: 1, Last: rolelink.Change{Why: "w", At: time.Unix(9, 0)}}
	well.Peer = rolelink.Peer{Heard: true, State: role.Standby, Able: true, Synced: true, Silent: 0.1}
	r := dashboardRole(&well)
	if r.State != "active" || r.Peer != "standby" || !r.Heard || r.Priority != 7 || r.Why != "w" || r.Since.Unix() != 9 || r.Lease != 2 || r.Splits != 1 || len(r.Trouble) != 0 || r.Trouble == nil {
		t.Errorf("%+v", r)
	}
	for want, change := range map[string]func(*rolelink.Status){
		"split brain: m answers, too":               func(s *rolelink.Status) { s.Split, s.By = true, "m" },
		"held off by m":                             func(s *rolelink.Status) { s.HeldOff, s.By = true, "m" },
		"a device has no link":                      func(s *rolelink.Status) { s.Able = false },
		"no watched address answers":                func(s *rolelink.Status) { s.CutOff = true },
		"a device of the other gateway has no link": func(s *rolelink.Status) { s.Peer.Able = false },
		"the other gateway is cut off":              func(s *rolelink.Status) { s.Peer.CutOff = true },
		"the other gateway lacks connections":       func(s *rolelink.Status) { s.Peer.Synced = false },
		"the other gateway has other addresses":     func(s *rolelink.Status) { s.Differ = true },
		"both have the same sync.index":             func(s *rolelink.Status) { s.Peer.SameIndex = true },
	} {
		st := well
		change(&st)
		if got := dashboardRole(&st).Trouble; !slices.Equal(got, []string{want}) {
			t.Errorf("%q: %q", want, got)
		}
	}
}
