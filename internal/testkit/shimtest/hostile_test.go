package shimtest

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/shim"
)

// startAs is start as another user.
func (b *bed) startAs(uid uint32, args ...string) *process {
	b.t.Helper()
	p := &process{Cmd: exec.Command(built.life, args...), t: b.t}
	p.Env = append(os.Environ(), "LD_PRELOAD="+built.library, "MILLRACE_SHIM="+b.path, fmt.Sprint("MILLRACE_SHIM_UID=", os.Geteuid()))
	p.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	p.Stdout, p.Stderr, p.Dir = &p.out, &p.out, "/"
	if err := p.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	return p
}

// user returns what a user has.
func (b *bed) user(uid uint32) (u shim.UserStats) {
	for _, v := range b.Stats().Users {
		if v.UID == uid {
			u = v
		}
	}
	return u
}

// TestUsersHaveTheirOwnLimits: one user's programs use up that user's sockets alone, and SIGKILL gives them back.
func TestUsersHaveTheirOwnLimits(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it needs other users, so it needs root")
	}
	const first, second, most = 65001, 65002, 10
	b := newBed(t, 1, func(c *shim.Config) { c.Everyone, c.Limits = true, shim.Limits{Sockets: most, Connects: 1000} })
	b.services()
	holds := func(uid uint32) *process {
		t.Helper()
		p := b.startAs(uid, "hold", fmt.Sprint(most))
		p.says("holds")
		return p
	}
	b.startAs(first, "low-port", strconv.Itoa(int(syscall.EACCES))).ends()
	p, q := holds(first), holds(second)
	b.startAs(first, "one-more", strconv.Itoa(int(syscall.EMFILE))).ends()
	if u := b.user(first); u.Sockets != most || u.Limited == 0 || u.Denied == 0 {
		t.Errorf("the first user: %+v", u)
	}
	if u := b.user(second); u.Sockets != most || u.Limited != 0 || u.Denied != 0 {
		t.Errorf("the second user: %+v", u)
	}
	_ = p.Process.Kill()
	_ = p.Wait()
	until(t, "the first user's sockets are given back", func() bool { return b.user(first).Sockets == 0 && b.user(first).Channels == 0 })
	if u := b.user(second); u.Sockets != most {
		t.Errorf("the second user has lost some: %+v", u)
	}
	holds(first)
	_ = q.Process.Kill()
}

// TestFakeNode: a program of one user does not talk to a node of another one, which it was not sent to.
func TestFakeNode(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it needs other users, so it needs root")
	}
	b := newBed(t, 1, nil)
	b.path = strings.TrimSuffix(b.path, "shim.sock") + "fake.sock"
	if err := os.Chmod(strings.TrimSuffix(b.path, "/fake.sock"), 0o777); err != nil {
		t.Fatal(err)
	}
	b.startAs(65001, "fake-node", b.path).says("listens")
	p := b.startAs(65002, "one-more", strconv.Itoa(int(syscall.EACCES)))
	p.ends()
	p.saidOnly("may not use the stack")
}

// TestFloods: many programs connect and are killed at any moment. The node serves others meanwhile, and has nothing left.
func TestFloods(t *testing.T) {
	onTiers(t, func(t *testing.T, env []string) {
		b := newBed(t, 2, nil).with(t, env)
		b.services()
		before := b.use()
		for round := range 4 {
			var all []*process
			for range 3 {
				all = append(all, b.start("flood", fmt.Sprint(round)))
			}
			for _, p := range all {
				p.says("floods")
			}
			b.runs("one-echo")
			for _, p := range all {
				_ = p.Process.Kill()
				_ = p.Wait()
			}
		}
		b.clean()
		before.heap, before.conns, before.descriptors = 1<<40, 1<<20, before.descriptors+2
		b.settles(before)
	})
}
