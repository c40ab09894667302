package control_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/l4/rolelink"
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
