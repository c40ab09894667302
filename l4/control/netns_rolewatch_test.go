package control_test

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/l4/rolelink"
)

// TestACutPortOfTheActiveGateway takes the switch port of the active gateway out of the bridge, where its carrier stays: the watched
// host, here the client, answers it no more, and it hands over amid downloads. Joined again it stays the standby. When the sync is cut,
// too, the other gateway takes over a lease later, and at no time do two answer.
func TestACutPortOfTheActiveGateway(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"afxdp", "afpacket"} {
		t.Run(driver, func(t *testing.T) {
			const watch = `, watch: [198.18.0.21, "2001:db8::21"]`
			r := newRoles(t, "mr-rolewat"+driver[2:4], driver, 2*time.Second, [2]string{watch, watch})
			r.startBoth()
			port := func(name string, joined bool) {
				t.Helper()
				args := []string{"link", "set", name, "nomaster"}
				if joined {
					args = []string{"link", "set", name, "master", "br0"}
				}
				_, err := r.sw.Run("ip", args...)
				r.must(err)
			}
			for _, g := range []*site{r.site, r.second} {
				r.until(g, "hears the client", func(st *rolelink.Status) bool { return st.Reaches && st.Peer.Reaches })
			}
			j := r.judge()
			r.allDownloads(8, func() {
				port("p1", false)
				r.awaitRole(r.second, "active", 1)
			})
			if st := r.role(r.site); st.State.String() != "standby" || !st.CutOff || !st.Able || !strings.Contains(r.log.String(), "no watched address answers") {
				t.Errorf("%+v", st)
			}
			port("p1", true)
			r.until(r.site, "hears the client again", func(st *rolelink.Status) bool { return st.Reaches && !st.CutOff })
			time.Sleep(2 * r.lease)
			if st := r.role(r.second); st.State.String() != "active" || st.Splits != 0 {
				t.Errorf("%+v", st)
			}
			r.awaitRoleServed()
			port("p2", false)
			r.ip(r.site, "link", "set", "sync", "down")
			r.awaitRole(r.site, "active", 2)
			port("p2", true)
			r.awaitRoleServed()
			time.Sleep(r.lease)
			if st := r.role(r.second); st.State.String() == "active" || r.second.entered("active") != 1 {
				t.Errorf("%+v\n%s", st, r.second.log.String())
			}
			j.wantRuns("010")
			r.stop()
			r.second.stop()
		})
	}
}
