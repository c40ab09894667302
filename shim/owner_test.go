package shim

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

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

// TestMayBindLow: rights are those of the process that has opened the channel, as long as it has them, and not of one that has its
// number later, nor of one that it names and that is not its own.
func TestMayBindLow(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	other := exec.Command("sleep", "60")
	other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 70001, Gid: 70001}}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Process.Kill(); _ = other.Wait() })
	with := exec.Command("sleep", "60") // a user with the capability, as systemd's AmbientCapabilities make one
	with.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 70001, Gid: 70001}, AmbientCaps: []uintptr{unix.CAP_NET_BIND_SERVICE}}
	without := exec.Command("setpriv", "--bounding-set", "-net_bind_service", "--inh-caps", "-net_bind_service", "sleep", "60") // root without it
	apart := exec.Command("sleep", "60")                                                                                        // all capabilities, in a user namespace of its own
	apart.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	for _, cmd := range []*exec.Cmd{with, without, apart} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		until(t, "it sleeps", func() bool { return command(cmd.Process.Pid) == "sleep" })
	}
	own, its := os.Getpid(), other.Process.Pid
	for _, tc := range []struct {
		what       string
		pid        int
		later      uint64 // it has begun, in ticks after what the channel has
		supervisor bool
		asker      int
		want       bool
	}{
		{"itself", own, 0, false, 0, true},
		{"a process with its number", own, 1, false, 0, false},
		{"a process of a user", its, 0, false, 0, false},
		{"a supervisor for itself", own, 0, true, 0, true},
		{"a supervisor for root", own, 0, true, own, true},
		{"a supervisor for a user", own, 0, true, its, false},
		{"a user's supervisor for root", its, 0, true, own, false},
		{"a user's supervisor for itself", its, 0, true, its, false},
		{"no supervisor, which names another", own, 0, false, its, true},
		{"a process that has ended", 1 << 30, 0, false, 0, false},
		{"a user with the capability", with.Process.Pid, 0, false, 0, true},
		{"a supervisor for a user with it", own, 0, true, with.Process.Pid, true},
		{"root without it", without.Process.Pid, 0, false, 0, false},
		{"in another user namespace", apart.Process.Pid, 0, false, 0, false},
	} {
		started, _ := startTime(tc.pid)
		c := &channel{supervisor: tc.supervisor, peer: &user{}, owner: &socket.Process{PID: tc.pid}, started: started - tc.later, asker: uint32(tc.asker)}
		if got := c.mayBindLow(); got != tc.want {
			t.Errorf("%s: %v", tc.what, got)
		}
	}
}

// TestStartTime: it is that of the kernel, whatever the program's name.
func TestStartTime(t *testing.T) {
	dir := t.TempDir()
	path := dir + "/a) R (b"
	if err := os.Symlink("/bin/sleep", path); err != nil {
		t.Fatal(err)
	}
	before, err := startTime(os.Getpid())
	if err != nil || before == 0 {
		t.Fatal(before, err)
	}
	cmd := exec.Command(path, "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	until(t, "it has its name", func() bool { return command(cmd.Process.Pid) == "a) R (b" })
	began, err := startTime(cmd.Process.Pid)
	if err != nil || began < before || began > before+100*600 {
		t.Errorf("%d, after %d: %v", began, before, err)
	}
	if _, err := startTime(1 << 30); err == nil {
		t.Error("a process that is none has begun")
	}
}

// TestGroupsOfProcesses: each supplementary group of a process lets it in, the last one, too.
func TestGroupsOfProcesses(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can change its groups")
	}
	b := newBed(t, nil)
	b.distrust()
	for group, want := range map[uint32]error{70001: nil, 70002: nil, 70003: nil, 70004: syscall.EACCES} {
		b.cfg.Groups = []uint32{group}
		hello := make(chan error)
		go func() {
			runtime.LockOSThread() // which ends with the goroutine
			groups := [3]uint32{70001, 70002, 70003}
			if _, _, errno := syscall.RawSyscall(syscall.SYS_SETGROUPS, 3, uintptr(unsafe.Pointer(&groups)), 0); errno != 0 {
				hello <- errno
				return
			}
			_, err := Hello(b.cfg.Path)
			hello <- err
		}()
		if err := <-hello; !errors.Is(err, want) {
			t.Errorf("group %d: %v, want %v", group, err, want)
		}
	}
}
