package control_test

import (
	"crypto/rand"
	"errors"
	"net"
	"net/http"
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

// adminOf returns the control of a gateway.
func (r *roles) adminOf(g *site) *admin.Client {
	name := "gw0.sock"
	if g == r.second {
		name = "gw1.sock"
	}
	return admin.NewClient(filepath.Join(filepath.Dir(g.file), name))
}

// role returns the role that the status of a gateway has.
func (r *roles) role(g *site) *rolelink.Status {
	r.t.Helper()
	st, err := r.adminOf(g).Status(r.t.Context(), control.Selection{Summary: true})
	r.must(err)
	if st.Role == nil {
		r.t.Fatal("the status has no role")
	}
	return st.Role
}

// order has a gateway be active or standby, once the other one is ready.
func (r *roles) order(g *site, state string) {
	r.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		st, err := r.adminOf(g).SetRole(r.t.Context(), state)
		if err == nil && st.State.String() == state {
			return
		}
		if e := new(admin.Error); !errors.As(err, &e) || e.Code != http.StatusConflict || time.Now().After(end) {
			r.t.Fatalf("%v, %v", st.State, err)
		}
	}
}

func (r *roles) ip(g *site, args ...string) {
	r.t.Helper()
	_, err := g.gate.Run("ip", args...)
	r.must(err)
}

// TestHandOverOnPurpose moves the addresses by an order, back by another one, and by the end of a process, amid downloads: none is
// lost, and at no time do two answer.
func TestHandOverOnPurpose(t *testing.T) {
	t.Parallel()
	r := newRoles(t, "mr-rolehand", "afxdp", 4*time.Second, [2]string{})
	r.startBoth()
	j := r.judge()
	if err := r.adminOf(r.second).Announce(t.Context()); err == nil || !strings.Contains(err.Error(), "the other one answers") {
		t.Errorf("a standby announces: %v", err)
	}
	r.must(r.adminOf(r.site).Announce(t.Context()))
	r.allDownloads(12, func() {
		r.order(r.site, "standby")
		r.awaitRole(r.second, "active", 1)
		r.awaitRoleServed()
		j.await("01")
		r.order(r.site, "active")
		j.await("010")
	})
	if st := r.role(r.second); st.State.String() != "standby" || st.Peer.State.String() != "active" || st.Splits != 0 || !st.Peer.Heard {
		t.Errorf("%+v", st)
	}
	r.allDownloads(12, func() { r.stop() })
	r.awaitRole(r.second, "active", 2)
	if st := r.role(r.second); st.Peer.Heard || !strings.Contains(st.Last.Why, "hands over") {
		t.Errorf("%+v", st)
	}
	if _, err := r.adminOf(r.second).SetRole(t.Context(), "standby"); err == nil || !strings.Contains(err.Error(), "not heard") {
		t.Errorf("without a peer: %v", err)
	}
	j.wantRuns("0101")
	r.second.stop()
}

// TestASuspendedGatewayDoesNotAnswer suspends the active process for longer than the lease: when it goes on it finds questions in its
// rings, and answers none.
func TestASuspendedGatewayDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"afxdp", "afpacket"} {
		t.Run(driver, func(t *testing.T) {
			r := newRoles(t, "mr-rolestop"+driver[2:4], driver, 3*time.Second, [2]string{})
			r.startBoth()
			j := r.judge()
			r.allDownloads(8, func() {
				r.must(r.cmd.Process.Signal(syscall.SIGSTOP))
				r.awaitRole(r.second, "active", 1)
				time.Sleep(500 * time.Millisecond)
				r.must(r.cmd.Process.Signal(syscall.SIGCONT))
				r.awaitRole(r.site, "standby", 1)
			})
			j.wantRuns("01")
			if st := r.role(r.second); st.Splits != 0 {
				t.Errorf("%+v", st)
			}
			r.stop()
			r.second.stop()
		})
	}
}

// TestACutSyncLinkLeavesTheAddresses cuts the network between the gateways: the standby sees on the link that the other one answers,
// and waits. When that is killed it takes over. A role with a second path does not notice the cut.
func TestACutSyncLinkLeavesTheAddresses(t *testing.T) {
	t.Parallel()
	r := newRoles(t, "mr-rolecut", "afxdp", 3*time.Second, [2]string{})
	r.startBoth()
	j := r.judge()
	r.ip(r.site, "link", "set", "sync", "down")
	r.until(r.second, "held off", func(st *rolelink.Status) bool { return st.HeldOff })
	time.Sleep(2 * r.lease)
	st := r.role(r.second)
	if r.second.entered("active") != 0 || !st.HeldOff || st.By == "" || st.Probes == 0 || st.Asks != 4 {
		t.Errorf("while the sync is cut: %+v", st)
	}
	r.must(r.cmd.Process.Kill())
	r.cmd.Wait()
	r.awaitRole(r.second, "active", 1)
	r.awaitRoleServed()
	j.wantRuns("01")
	r.second.stop()
}

func TestASecondPath(t *testing.T) {
	t.Parallel()
	r := newRoles(t, "mr-rolepath", "afxdp", 3*time.Second, [2]string{
		`, paths: [{listen: "198.18.0.11:3780", peer: "198.18.0.12:3780"}]`, `, paths: [{listen: "198.18.0.12:3780", peer: "198.18.0.11:3780"}]`,
	})
	r.startBoth()
	r.ip(r.site, "link", "set", "sync", "down")
	time.Sleep(3 * r.lease)
	st := r.role(r.second)
	if st.State.String() != "standby" || !st.Peer.Heard || len(st.Paths) != 2 || st.Paths[0].Up || !st.Paths[1].Up || st.Changes != 1 {
		t.Errorf("%+v", st)
	}
	r.stop()
	r.second.stop()
}

// TestSplitBrainHeals cuts both networks, so that each gateway is active for its side, and then mends the one between them: one
// gives way, before the links are joined again.
func TestSplitBrainHeals(t *testing.T) {
	t.Parallel()
	r := newRoles(t, "mr-rolesplit", "afxdp", 3*time.Second, [2]string{})
	r.startBoth()
	j := r.judge()
	_, err := r.sw.Run("ip", "link", "set", "p2", "nomaster")
	r.must(err)
	r.ip(r.site, "link", "set", "sync", "down")
	r.awaitRole(r.second, "active", 1)
	r.ip(r.site, "link", "set", "sync", "up")
	r.awaitRole(r.site, "standby", 1) // the other has been active for less long
	for _, g := range []*site{r.site, r.second} {
		if st := r.role(g); st.Splits != 1 || !strings.Contains(g.log.String(), `"split brain"="two gateways answer`) {
			t.Errorf("%+v\n%s", st, g.log.String())
		}
	}
	_, err = r.sw.Run("ip", "link", "set", "p2", "master", "br0")
	r.must(err)
	j.await("01")                // or no question reaches the second one before the order
	r.order(r.second, "standby") // there is someone to answer: tables of neighbours are as the last announcement
	j.await("010")
	r.order(r.second, "active")
	r.awaitRoleServed()
	j.wantRuns("0101")
	r.stop()
	r.second.stop()
}

// TestADeviceOfTheActiveGatewayLosesItsLink takes the link of the active gateway's device down: the addresses move at once, and stay.
func TestADeviceOfTheActiveGatewayLosesItsLink(t *testing.T) {
	t.Parallel()
	r := newRoles(t, "mr-rolelink", "afxdp", 4*time.Second, [2]string{})
	r.startBoth()
	j := r.judge()
	r.allDownloads(8, func() {
		_, err := r.sw.Run("ip", "link", "set", "p1", "down")
		r.must(err)
		r.awaitRole(r.second, "active", 1)
	})
	if last := r.role(r.site).Last; !strings.Contains(r.log.String(), `cause="a device has no link"`) {
		t.Errorf("%+v", last)
	}
	_, err := r.sw.Run("ip", "link", "set", "p1", "up")
	r.must(err)
	time.Sleep(2 * r.lease)
	if st := r.role(r.site); st.State.String() != "standby" || !st.Able {
		t.Errorf("%+v", st)
	}
	j.wantRuns("01")
	r.stop()
	r.second.stop()
}

// TestHostilePacketsAtTheRolesPort sends garbage from the peer's own address and port.
func TestHostilePacketsAtTheRolesPort(t *testing.T) {
	t.Parallel()
	r := newRoles(t, "mr-rolevil", "afxdp", 3*time.Second, [2]string{})
	r.start()
	r.awaitRole(r.site, "active", 1)
	r.must(r.second.gate.Do(func() error {
		c, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(198, 18, 9, 2), Port: 3780}, &net.UDPAddr{IP: net.IPv4(198, 18, 9, 1), Port: 3780})
		if err != nil {
			return err
		}
		defer c.Close()
		b := make([]byte, 600)
		for i := range 5000 {
			rand.Read(b)
			copy(b, "MRRO\x01\x03")
			if _, err := c.Write(b[:i%len(b)]); err != nil && !strings.Contains(err.Error(), "refused") {
				return err
			}
		}
		return nil
	}))
	time.Sleep(r.lease)
	if st := r.role(r.site); st.State.String() != "active" || st.Changes != 2 || st.Rejected == 0 || st.Received != 0 || st.Peer.Heard {
		t.Errorf("%+v", st)
	}
	r.awaitRoleServed()
	r.stop()
}

// TestAPeerWithoutARole has a gateway of two start with a role beside one that has none and answers: it waits.
func TestAPeerWithoutARole(t *testing.T) {
	t.Parallel()
	r := newRoles(t, "mr-rolenone", "afxdp", 2*time.Second, [2]string{})
	text, err := os.ReadFile(r.file)
	r.must(err)
	r.must(os.WriteFile(r.file, []byte(strings.Replace(string(text), ", role: {lease: 2s}", "", 1)), 0o600))
	r.start()
	r.awaitRoleServed()
	j := r.judge()
	r.second.start()
	r.awaitRole(r.second, "probing", 1)
	r.awaitSynced()
	time.Sleep(3 * r.lease)
	if st := r.role(r.second); st.State.String() != "probing" || !st.HeldOff {
		t.Errorf("%+v", st)
	}
	j.wantRuns("0")
	r.stop()
	r.second.stop()
}
