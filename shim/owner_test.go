package shim

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/millrace/millrace/socket"
)

// TestOwner has whose request it is: that of the process for which a supervisor asks, if it is one of the same user.
func TestOwner(t *testing.T) {
	other := exec.Command("sleep", "60")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Process.Kill(); _ = other.Wait() })
	uid, own := uint32(os.Geteuid()), &socket.Process{PID: os.Getpid(), Command: "supervisor", Seccomp: true}
	for _, tc := range []struct {
		what       string
		supervisor bool
		uid        uint32
		asker      int
		want       int
	}{
		{"another process", true, uid, other.Process.Pid, other.Process.Pid},
		{"a thread", true, uid, syscall.Gettid(), os.Getpid()},
		{"itself", true, uid, 0, own.PID},
		{"a process that is none", true, uid, 1 << 30, own.PID},
		{"the process of another user", true, uid + 12345, other.Process.Pid, own.PID},
		{"no supervisor", false, uid, other.Process.Pid, own.PID},
	} {
		c := &channel{supervisor: tc.supervisor, peer: &user{uid: tc.uid}, owner: own, asker: uint32(tc.asker)}
		p := c.process()
		if p.PID != tc.want || !p.Seccomp {
			t.Errorf("%s: %+v, want process %d", tc.what, p, tc.want)
		}
		if tc.want == other.Process.Pid && (p.UID != uid || p.Command != "sleep" && p.Command != "shim.test") { // before its exec
			t.Errorf("%s: %+v", tc.what, p)
		}
	}
}
