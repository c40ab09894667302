package interop

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// frr is FRRouting in a namespace: zebra, which enters routes in the kernel, and bgpd.
type frr struct {
	t   testing.TB
	ns  *testnet.Namespace
	dir string
}

const frrPrograms = "/usr/lib/frr/"

// startFRR starts FRRouting with a configuration of bgpd.
func startFRR(t testing.TB, ns *testnet.Namespace, config string) *frr {
	t.Helper()
	needRouter(t, frrPrograms+"bgpd")
	r := &frr{t: t, ns: ns, dir: shortDir(t)}
	file := filepath.Join(r.dir, "frr.conf")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	giveTo(t, "frr", r.dir)
	empty := filepath.Join(r.dir, "zebra.conf")
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	api := filepath.Join(r.dir, "zserv.api")
	r.start("zebra", empty, api)
	eventually(t, "the socket of zebra, which bgpd looks for every 10 s", func() string { _, err := os.Stat(api); return fmt.Sprint(err) }, "<nil>")
	r.start("bgpd", file, api)
	return r
}

// start starts a daemon.
func (r *frr) start(name, file, api string) {
	log := filepath.Join(r.dir, name+".log")
	startProgram(r.t, r.ns, log, frrPrograms+name, "-f", file, "-i", filepath.Join(r.dir, name+".pid"), "-z", api, "--vty_socket", r.dir, "-P", "0", "--log", "file:"+log)
}

// giveTo makes a user, as which a program runs, the owner of a folder.
func giveTo(t testing.TB, name, dir string) {
	t.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
}

// shortDir returns a folder whose path is short enough for the sockets in it.
func shortDir(t testing.TB) string {
	dir, err := os.MkdirTemp("", "bgp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// needRouter skips a test whose router is not installed.
func needRouter(t testing.TB, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("%s is not installed: make interop-bgp installs it", program)
	}
}

// startProgram starts a program in a namespace, which ends with the test.
func startProgram(t testing.TB, ns *testnet.Namespace, log, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(name, args...)
	out, err := os.Create(log + ".out")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = out, out
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		out.Close()
		if t.Failed() {
			for _, f := range []string{log, log + ".out"} {
				text, _ := os.ReadFile(f)
				t.Logf("%s:\n%s", filepath.Base(f), text)
			}
		}
	})
	return cmd
}

// show returns what vtysh prints for a command.
func (r *frr) show(command string) string {
	out, err := exec.Command("vtysh", "--vty_socket", r.dir, "-c", command).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%v: %s", err, out)
	}
	return string(out)
}

// configure runs commands of the configuration mode.
func (r *frr) configure(commands ...string) {
	r.t.Helper()
	args := []string{"--vty_socket", r.dir, "-c", "configure terminal"}
	for _, c := range commands {
		args = append(args, "-c", c)
	}
	if out, err := exec.Command("vtysh", args...).CombinedOutput(); err != nil {
		r.t.Fatalf("%v: %v: %s", commands, err, out)
	}
}

// eventually waits until what a function returns has the text that is wanted, or with ! does not have it.
func eventually(t testing.TB, what string, get func() string, want ...string) string {
	t.Helper()
	var got string
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		got = get()
		ok := true
		for _, w := range want {
			absent, not := strings.CutPrefix(w, "!")
			ok = ok && (not && !strings.Contains(got, absent) || !not && strings.Contains(got, w))
		}
		if ok {
			return got
		}
	}
	t.Fatalf("%s: want %q, got:\n%s", what, want, got)
	return ""
}
