package control_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/l4/rolelink"
)

// strangers gives the second gateway another key, priority and index 0, so that neither hears a message of the other.
func (r *roles) strangers() {
	r.t.Helper()
	text, err := os.ReadFile(r.second.file)
	r.must(err)
	s := strings.NewReplacer("0000007\"", "0000008\"", "index: 1", "index: 0").Replace(string(text))
	r.must(os.WriteFile(r.second.file, []byte(s), 0o600))
}

// active waits until one of both gateways has become active so many times in all, and returns it and the other.
func (r *roles) active(times int) (is, other *site) {
	r.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		switch a, b := r.site.entered("active"), r.second.entered("active"); {
		case a+b < times && time.Now().Before(end):
		case a+b != times:
			r.t.Fatalf("they became active %d and %d times:\n%s\n%s", a, b, r.log.String(), r.second.log.String())
		case r.role(r.site).State.String() == "active":
			return r.site, r.second
		default:
			return r.second, r.site
		}
	}
}

// TestGatewaysThatHearNothingOfEachOther starts two gateways of the same addresses with other keys at the same time: one answers, and
// the other when that is killed. When both answer, each for its side of a cut link, one gives way once the link is joined.
func TestGatewaysThatHearNothingOfEachOther(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"afxdp", "afpacket"} {
		t.Run(driver, func(t *testing.T) {
			r := newRoles(t, "mr-rolestr"+driver[2:4], driver, time.Second, [2]string{})
			r.strangers()
			r.start()
			r.second.start()
			j := r.judge()
			is, other := r.active(1)
			r.awaitRoleServed()
			time.Sleep(3 * r.lease)
			if st := r.role(other); st.State.String() != "probing" || !st.HeldOff || st.By == "" {
				t.Errorf("%+v", st)
			}
			r.must(is.cmd.Process.Kill())
			is.cmd.Wait()
			r.awaitRole(other, "active", 1)
			r.awaitRoleServed()
			want := map[*site]string{r.site: "01", r.second: "10"}[is]
			j.wantRuns(want)

			is.out.Reset()
			probed := is.entered("probing")
			is.start()
			r.awaitRole(is, "probing", probed+1)
			r.until(is, "held off", func(st *rolelink.Status) bool { return st.HeldOff })
			_, err := r.sw.Run("ip", "link", "set", "p2", "nomaster")
			r.must(err)
			r.until(is, "active", func(st *rolelink.Status) bool { return st.State.String() == "active" })
			_, err = r.sw.Run("ip", "link", "set", "p2", "master", "br0")
			r.must(err)
			r.until(is, "one", func(*rolelink.Status) bool {
				return (r.role(is).State.String() == "active") != (r.role(other).State.String() == "active")
			})
			if !strings.Contains(r.log.String()+r.second.log.String(), "ranks first") {
				t.Errorf("no one gives way:\n%s\n%s", r.log.String(), r.second.log.String())
			}
			time.Sleep(r.lease)
			again := r.judge()
			time.Sleep(3 * r.lease)
			stays := map[bool]string{true: "0", false: "1"}[r.role(r.site).State.String() == "active"]
			again.wantRuns(stays)
			r.stop()
			r.second.stop()
		})
	}
}
