package control_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/admin"
	"github.com/millrace/millrace/l4/control"
	"github.com/millrace/millrace/l4/rolelink"
)

// upgrade has another process replace a gateway, and returns its number.
func (r *roles) upgrade(g *site) int {
	r.t.Helper()
	res, err := r.adminOf(g).Upgrade(r.t.Context(), admin.Upgrade{})
	r.must(err)
	r.t.Cleanup(func() { _ = syscall.Kill(res.PID, syscall.SIGKILL) })
	r.t.Logf("%v without devices, %d connections", time.Duration(res.Gap), res.Connections)
	return res.PID
}

// awaitInStep waits until each gateway has all connections of the other one.
func (r *roles) awaitInStep() {
	r.t.Helper()
	for _, g := range []*site{r.site, r.second} {
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			st, err := r.adminOf(g).Status(r.t.Context(), control.Selection{Summary: true})
			r.must(err)
			if st.Gateway.Sync.InStep {
				break
			}
			if time.Now().After(end) {
				r.t.Fatalf("the gateways do not share connections: %+v", st.Gateway.Sync)
			}
		}
	}
	time.Sleep(time.Second) // what has changed since is sent
}

// TestUpgradesOfBothGateways upgrades the standby and the active one of two gateways amid downloads, and fails to: the roles stay, one
// gateway alone answers, and no download is lost. The new processes take over from each other as those of before.
func TestUpgradesOfBothGateways(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"afxdp", "afpacket"} {
		t.Run(driver, func(t *testing.T) {
			r := newRoles(t, "mr-roleup"+driver[2:4], driver, 4*time.Second, [2]string{})
			r.startBoth()
			j := r.judge()
			first, second := 0, 0
			r.allDownloads(12, func() {
				second = r.upgrade(r.second)
				r.awaitInStep()
				first = r.upgrade(r.site)
			})
			r.awaitInStep()
			// It dies while the old process still watches it, which takes a second, with time for the kernel to close its devices.
			dies := filepath.Join(t.TempDir(), "dies")
			r.must(os.WriteFile(dies, fmt.Appendf(nil, "#!/bin/sh\n(sleep 0.4; kill -9 $$) >/dev/null 2>&1 &\nexec %s \"$@\"\n", os.Args[0]), 0o755))
			r.allDownloads(4, func() {
				if _, err := r.adminOf(r.site).Upgrade(t.Context(), admin.Upgrade{Binary: dies}); err == nil || !strings.Contains(err.Error(), "this gateway goes on") {
					t.Errorf("an upgrade to a program that dies: %v", err)
				}
				r.until(r.site, "active again", func(st *rolelink.Status) bool { return st.State.String() == "active" })
			})
			r.awaitInStep()
			a, b := r.role(r.site), r.role(r.second)
			if a.State.String() != "active" || b.State.String() != "standby" || !b.Peer.Heard || a.Splits+b.Splits != 0 || b.Changes != 1 || r.second.entered("active") != 0 {
				t.Errorf("%+v\n%+v", a, b)
			}
			r.allDownloads(12, func() {
				r.must(syscall.Kill(first, syscall.SIGKILL))
				r.awaitRole(r.second, "active", 1)
			})
			r.awaitRoleServed()
			j.wantRuns("01")
			r.must(syscall.Kill(second, syscall.SIGKILL))
		})
	}
}

// TestAnUpgradeOfAGatewayWithSyncAlone upgrades both of two gateways that share connections, and of which routes choose one.
func TestAnUpgradeOfAGatewayWithSyncAlone(t *testing.T) {
	t.Parallel()
	r := newRoles(t, "mr-syncup", "afxdp", time.Second, [2]string{})
	for _, g := range []*site{r.site, r.second} {
		text, err := os.ReadFile(g.file)
		r.must(err)
		r.must(os.WriteFile(g.file, []byte(strings.Replace(string(text), ", role: {lease: 1s}", "", 1)), 0o600))
	}
	r.start()
	r.awaitRoleServed()
	_, err := r.sw.Run("ip", "link", "set", "p2", "nomaster") // one answers
	r.must(err)
	r.second.start()
	r.awaitInStep()
	r.allDownloads(8, func() {
		r.upgrade(r.second)
		r.awaitInStep()
		r.upgrade(r.site)
		r.awaitInStep()
	})
}
