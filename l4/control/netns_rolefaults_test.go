package control_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/l4/rolelink"
	"github.com/millrace/millrace/wire"
)

// until waits until the role of a gateway is as wanted.
func (r *roles) until(g *site, what string, is func(*rolelink.Status) bool) {
	r.t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(r.role(g)); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("%s: %+v\n%s", what, r.role(g), g.log.String())
		}
	}
}

// TestACutSyncLinkWithOtherFiles has a standby with new services at the top of its file: it asks on the link for addresses that
// the active gateway has, so a cut between the gateways moves nothing. Both say that their files differ.
func TestACutSyncLinkWithOtherFiles(t *testing.T) {
	t.Parallel()
	r := newRoles(t, "mr-rolediff", "afxdp", 3*time.Second, [2]string{})
	r.startBoth()
	text, err := os.ReadFile(r.second.file)
	r.must(err)
	r.must(os.WriteFile(r.second.file, []byte(strings.Replace(string(text), "services:\n", `services:
  - {name: new1, address: [198.18.0.120:80, "[2001:db8::120]:80"], backends: [{address: ["198.18.0.31:8100", "[2001:db8::31]:8100"]}]}
  - {name: new2, address: [198.18.0.121:80, "[2001:db8::121]:80"], backends: [{address: ["198.18.0.31:8100", "[2001:db8::31]:8100"]}]}
`, 1)), 0o600))
	if _, err := r.adminOf(r.second).Reload(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	for _, g := range []*site{r.site, r.second} {
		r.until(g, "the addresses differ", func(st *rolelink.Status) bool { return st.Differ })
		if !strings.Contains(g.log.String(), "the file of the other gateway has other") {
			t.Errorf("no line in the log: %s", g.log.String())
		}
	}
	j := r.judge()
	r.ip(r.site, "link", "set", "sync", "down")
	r.until(r.second, "held off", func(st *rolelink.Status) bool { return st.HeldOff })
	time.Sleep(3 * r.lease)
	if st := r.role(r.second); r.second.entered("active") != 0 || !st.HeldOff {
		t.Errorf("while the sync is cut: %+v", st)
	}
	j.wantRuns("0")
	r.stop()
	r.second.stop()
}

// TestAStrangerThatProbesForAnAddress has a host of the link send ARP probes for a service address after the active gateway has
// died: the standby takes over all the same, and the log has the host's link address.
func TestAStrangerThatProbesForAnAddress(t *testing.T) {
	t.Parallel()
	r := newRoles(t, "mr-roleprobe", "afxdp", 2*time.Second, [2]string{})
	r.startBoth()
	fd, index, mac := r.clientSocket()
	defer unix.Close(fd)
	probe := wire.AppendARP(wire.AppendEthernet(nil, wire.Broadcast, mac, wire.EtherTypeARP), wire.ARPRequest, wire.ARPHost{MAC: mac}, wire.ARPHost{Addr: [4]byte{198, 18, 0, 100}})
	r.must(r.cmd.Process.Kill())
	r.cmd.Wait()
	for end := time.Now().Add(30 * time.Second); r.second.entered("active") == 0; time.Sleep(20 * time.Millisecond) {
		_ = unix.Sendto(fd, probe, 0, &unix.SockaddrLinklayer{Ifindex: index})
		if time.Now().After(end) {
			t.Fatalf("held off: %+v\n%s", r.role(r.second), r.second.log.String())
		}
	}
	if st := r.role(r.second); st.Rivals == 0 || !strings.Contains(r.second.log.String(), `"asked by"=`+mac.String()) {
		t.Errorf("%+v\n%s", st, r.second.log.String())
	}
	r.second.stop()
}

// TestARoleWithoutARouteForOnePath starts while the network between the gateways is down: the second path serves, and the first one
// once it is up.
func TestARoleWithoutARouteForOnePath(t *testing.T) {
	t.Parallel()
	r := newRoles(t, "mr-roleroute", "afxdp", 3*time.Second, [2]string{
		`, paths: [{listen: "198.18.0.11:3780", peer: "198.18.0.12:3780"}]`, `, paths: [{listen: "198.18.0.12:3780", peer: "198.18.0.11:3780"}]`,
	})
	r.ip(r.site, "link", "set", "sync", "down")
	r.start()
	r.awaitRole(r.site, "active", 1)
	r.second.start()
	r.awaitRole(r.second, "standby", 1)
	r.until(r.site, "one path", func(st *rolelink.Status) bool { return !st.Paths[0].Up && st.Paths[0].Error != "" && st.Paths[1].Up })
	r.ip(r.site, "link", "set", "sync", "up")
	for _, g := range []*site{r.site, r.second} {
		r.until(g, "both paths", func(st *rolelink.Status) bool { return st.Paths[0].Up && st.Paths[0].Error == "" && st.Paths[1].Up })
	}
	r.stop()
	r.second.stop()
}
