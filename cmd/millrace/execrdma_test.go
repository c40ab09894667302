package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// rdmaHosts are two hosts with RDMA devices on a veth pair, 198.18.0.1 and 198.18.0.2.
type rdmaHosts struct {
	t       *testing.T
	ns      [2]*testnet.Namespace
	sockets [2]string
}

func newRDMAHosts(t *testing.T, prefix string) *rdmaHosts {
	t.Helper()
	library(t)
	nets := testnet.For(t, prefix)
	h := &rdmaHosts{t: t, ns: [2]*testnet.Namespace{nets.Namespace("a"), nets.Namespace("b")}}
	if err := nets.Link(h.ns[0], "eth0", h.ns[1], "eth0"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for i, ns := range h.ns {
		if err := ns.Up("eth0"); err != nil {
			t.Fatal(err)
		}
		h.sockets[i] = filepath.Join(dir, string(rune('a'+i))+".sock")
		var log buffer
		cmd := program("stack", "up", "--dev", "eth0", "--addr", []string{"198.18.0.1/24", "198.18.0.2/24"}[i], "--rdma", "--socket", h.sockets[i])
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &log, &log, 5*time.Second
		if err := ns.Start(cmd); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_, _, _ = run("stack", "down", "--socket", h.sockets[i])
			if code := exitCode(t, cmd.Wait()); code != 0 {
				t.Errorf("the host ended with code %d: %s", code, &log)
			}
		})
	}
	for i := range h.ns {
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			cmd, out := h.start(i, "true")
			if exitCode(t, cmd.Wait()) == 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("the host does not serve programs: %s", out)
			}
		}
	}
	return h
}

// start runs an unmodified program on a host.
func (h *rdmaHosts) start(host int, args ...string) (*exec.Cmd, *buffer) {
	h.t.Helper()
	var out buffer
	cmd := program(append([]string{"exec", "--rdma", "--socket", h.sockets[host], "--"}, args...)...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, 5*time.Second
	if err := h.ns[host].Start(cmd); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, &out
}

// pair runs a program as a server on the first host, and as a client on another.
func (h *rdmaHosts) pair(client int, args ...string) (clientSays, serverSays string) {
	h.t.Helper()
	return h.serve(args, client, append(args, "198.18.0.1")...)
}

// serve runs a server on the first host, and its client on another. Clients that come before the server listens are refused, and run
// once more.
func (h *rdmaHosts) serve(args []string, client int, clientArgs ...string) (clientSays, serverSays string) {
	h.t.Helper()
	server, says := h.start(0, args...)
	done := make(chan error, 1)
	go func() { done <- server.Wait() }()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		cmd, out := h.start(client, clientArgs...)
		if code := exitCode(h.t, cmd.Wait()); code == 0 {
			if code := exitCode(h.t, <-done); code != 0 {
				h.t.Fatalf("%v: the server ended with code %d: %s", args, code, says)
			}
			return out.String(), says.String()
		}
		select {
		case err := <-done:
			if strings.Contains(out.String(), "REJECTED, error: 8") { // some of the connections of a client came before it listened
				server, says = h.start(0, args...)
				go func() { done <- server.Wait() }()
				continue
			}
			h.t.Fatalf("%v: the server has ended (%v): %s\nclient: %s", args, err, says, out)
		default:
		}
		if time.Now().After(end) {
			h.t.Fatalf("%v: %s\nserver: %s", args, out, says)
		}
	}
}

// TestExecRDMA runs the programs of libibverbs unmodified, between two hosts and between two programs of one.
func TestExecRDMA(t *testing.T) {
	testnet.Program(t, "ibv_devinfo", "ibv_rc_pingpong")
	h := newRDMAHosts(t, "mr-xrdma")
	cmd, out := h.start(0, "ibv_devinfo", "-v")
	if code := exitCode(t, cmd.Wait()); code != 0 {
		t.Fatalf("ibv_devinfo: code %d, %s", code, out)
	}
	for _, want := range []string{"hca_id:\tmillrace0", "PORT_ACTIVE (4)", "active_mtu:\t\t1024 (3)", "GID[  0]:\t\t::ffff:198.18.0.1, RoCE v2", "ATOMIC_HCA"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("ibv_devinfo does not print %q:\n%s", want, out)
		}
	}
	for client, where := range []string{"one host", "two hosts"} {
		for _, args := range [][]string{
			{"ibv_rc_pingpong", "-g", "0", "-n", "200"},
			{"ibv_rc_pingpong", "-g", "0", "-n", "200", "-e", "-c"},
			{"ibv_rc_pingpong", "-g", "0", "-n", "20", "-e", "-c", "-N", "-s", "100000"},
			{"ibv_uc_pingpong", "-g", "0", "-n", "200", "-e"},
			{"ibv_ud_pingpong", "-g", "0", "-n", "200", "-e", "-s", "1000"},
			{"ibv_srq_pingpong", "-g", "0", "-n", "200", "-e"},
			{"unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "ibv_rc_pingpong", "-g", "0", "-n", "200", "-e", "-c"},
		} {
			t.Run(where+" "+strings.Join(args, " "), func(t *testing.T) {
				g := *h
				g.t = t
				if got, _ := g.pair(client, args...); !strings.Contains(got, " iters in ") {
					t.Error(got)
				}
			})
		}
	}
}

// TestExecRDMAPerftest runs perftest's programs between two hosts.
func TestExecRDMAPerftest(t *testing.T) {
	testnet.Program(t, "ib_write_lat")
	h := newRDMAHosts(t, "mr-xperf")
	for _, args := range [][]string{
		{"ib_write_lat", "-n", "50"},
		{"ib_send_lat", "-n", "50"},
		{"ib_read_lat", "-n", "50"},
		{"ib_atomic_lat", "-n", "50"},
		{"ib_write_bw", "-n", "50"},
		{"ib_write_bw", "-n", "50", "-b", "-q", "3"},
		{"ib_send_bw", "-n", "50", "-c", "UD", "-s", "1024"},
		{"ib_send_bw", "-n", "50", "-c", "UC", "-e"},
		{"ib_send_bw", "-n", "50", "-r", "64", "--use-srq"},
		{"ib_read_bw", "-n", "50"},
		{"ib_atomic_bw", "-n", "50"},
		{"ib_write_bw", "-n", "50", "-c", "UC"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			g := *h
			g.t = t
			if got, _ := g.pair(1, args...); !strings.Contains(got, "#iterations") {
				t.Error(got)
			}
		})
	}
}

// TestExecRDMAWithoutDevice names the remedy where the host has no RDMA device.
func TestExecRDMAWithoutDevice(t *testing.T) {
	library(t)
	f := execFlags{rdma: true, socket: filepath.Join(t.TempDir(), "none.sock")}
	_, err := f.rdmaEnvironment(nil)
	var not notStarted
	if !errors.As(err, &not) || not.code != exitNoNode || !strings.Contains(err.Error(), "`millrace stack up --rdma`") {
		t.Errorf("%v", err)
	}
	for _, flag := range []string{"--seccomp", "--fallback"} {
		if code := exitCode(t, program("exec", "--rdma", flag, "--", "true").Run()); code != exitUsage {
			t.Errorf("--rdma with %s: code %d", flag, code)
		}
	}
}

// TestExecRDMAPython runs rdma-core's own Python tests on the device, one program for each file. None fails; skips are those of what the
// device does not have.
func TestExecRDMAPython(t *testing.T) {
	if os.Getenv("MILLRACE_PYVERBS") == "" {
		t.Skip("rdma-core's Python tests: `make interop-rdma` installs and runs them")
	}
	const from = "/usr/share/doc/rdma-core/tests" // of python3-pyverbs
	dir := t.TempDir()
	if out, err := exec.Command("sh", "-c", "cp -r "+from+" "+dir+" && gunzip -f "+dir+"/tests/*.gz").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	files, err := filepath.Glob(filepath.Join(dir, "tests", "test_*.py"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests in %s: %v", from, err)
	}
	h := newRDMAHosts(t, "mr-xpyverbs")
	passed, skips := 0, map[string]int{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".py")
		cmd, out := h.start(0, "/usr/bin/python3", filepath.Join(dir, "tests", "run_tests.py"), "--dev", "millrace0", "--gid", "0", "-v", "tests."+name)
		if code := exitCode(t, cmd.Wait()); code != 0 {
			t.Errorf("%s: code %d\n%s", name, code, out)
		}
		passed += strings.Count(out.String(), "... ok\n")
		for line := range strings.Lines(out.String()) {
			if _, why, ok := strings.Cut(line, "... skipped "); ok {
				skips[strings.TrimSpace(why)]++
			}
		}
	}
	t.Logf("%d passed", passed)
	for why, n := range skips {
		t.Logf("%d skipped: %s", n, why)
	}
	if passed < 70 {
		t.Errorf("%d tests passed: most were skipped", passed)
	}
}
