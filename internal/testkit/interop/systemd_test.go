package interop

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/internal/testkit/testport"
)

// manager is systemd as process 1 of its own namespaces, with the shipped unit of the gateway.
type manager struct {
	t   *testing.T
	pid string // in the namespace of the test
}

// cgroupRoot is where the machine has its hierarchy of version 2.
func cgroupRoot(t *testing.T) string {
	t.Helper()
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(filepath.Join(dir, "cgroup.controllers")); err == nil {
			return dir
		}
	}
	t.Skip("no cgroup2")
	return ""
}

func newManager(t *testing.T, program, config string) *manager {
	t.Helper()
	testnet.Program(t, "/lib/systemd/systemd", "systemctl", "systemd-sysusers", "unshare", "nsenter")
	from, dir := t.TempDir(), t.TempDir()
	for name, path := range map[string]string{"millrace": program, "millrace-gateway.service": "../../../deploy/millrace-gateway.service", "millrace.sysusers": "../../../deploy/millrace.sysusers"} {
		b, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(filepath.Join(from, name), b, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(from, "gateway.yaml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	cgroup := filepath.Join(cgroupRoot(t), fmt.Sprintf("millrace-systemd-%d", os.Getpid()))
	if err := os.Mkdir(cgroup, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("testdata/systemd.sh", dir, cgroup, from)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Minute
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m := &manager{t: t}
	t.Cleanup(func() {
		if t.Failed() && m.pid != "" {
			t.Log(m.run("journalctl", "--no-pager", "-n", "200"))
		}
		_ = os.WriteFile(filepath.Join(cgroup, "cgroup.kill"), []byte("1"), 0)
		_ = cmd.Wait()
		m.await("an empty cgroup", func() bool { return removed(cgroup) })
		if t.Failed() {
			t.Log(out.String())
		}
	})
	m.await("systemd", func() bool {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
		m.pid = strings.TrimSpace(string(children))
		comm, _ := os.ReadFile("/proc/" + m.pid + "/comm")
		return m.pid != "" && string(comm) == "systemd\n"
	})
	m.await("the service", func() bool { return m.property("ActiveState") == "active" })
	return m
}

// removed removes a cgroup with those in it, and reports whether it is gone.
func removed(cgroup string) bool {
	var dirs []string
	_ = filepath.WalkDir(cgroup, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	for i := len(dirs) - 1; i >= 0; i-- {
		_ = os.Remove(dirs[i])
	}
	_, err := os.Stat(cgroup)
	return os.IsNotExist(err)
}

func (m *manager) await(what string, done func() bool) {
	m.t.Helper()
	for range 3000 {
		if done() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	m.t.Errorf("no %s", what)
}

// try runs a command in the namespaces.
func (m *manager) try(args ...string) (string, error) {
	out, err := exec.Command("nsenter", append([]string{"-t", m.pid, "-a"}, args...)...).CombinedOutput()
	return string(out), err
}

func (m *manager) run(args ...string) string {
	m.t.Helper()
	out, err := m.try(args...)
	if err != nil {
		m.t.Errorf("%v: %v\n%s", args, err, out)
	}
	return out
}

func (m *manager) property(name string) string {
	out, _ := m.try("systemctl", "show", "--value", "-p", name, "millrace-gateway")
	return strings.TrimSpace(out)
}

const managedConfig = `
listeners: [{name: web, address: "LISTEN", protocol: HTTP}]
routes: [{name: r, rules: [{filters: [{type: FixedResponse, status_code: 200, body: one}]}]}]
`

// TestUpgradesUnderSystemd has systemd start the shipped unit, reload it, replace its process where the program is another one, restart it
// after SIGKILL and stop it. While it reloads and upgrades, no request is lost; the unit's main process is the new one, and the old one
// ends; the end of an upgraded one is a success.
func TestUpgradesUnderSystemd(t *testing.T) {
	program := os.Getenv("MILLRACE_SYSTEMD")
	if program == "" {
		t.Skip("MILLRACE_SYSTEMD names no program: make interop-systemd")
	}
	addr := testport.Hold(t).String()
	m := newManager(t, program, strings.Replace(managedConfig, "LISTEN", addr, 1))
	if kind := m.property("Type"); kind != "notify" {
		t.Errorf("Type=%s", kind)
	}
	first := m.property("MainPID")
	l := requestsTo(t, addr)
	m.run("systemctl", "reload", "millrace-gateway")
	if pid := m.property("MainPID"); pid != first {
		t.Errorf("a reload replaced process %s by %s", first, pid)
	}
	before := first
	for range 3 {
		m.run("sh", "-c", "cp /usr/local/bin/millrace /usr/local/bin/next && mv /usr/local/bin/next /usr/local/bin/millrace")
		m.run("systemctl", "reload", "millrace-gateway")
		now := m.property("MainPID")
		if now == before || m.property("ActiveState") != "active" || m.property("NRestarts") != "0" {
			t.Errorf("after an upgrade: process %s, before %s, %s, restarts %s", now, before, m.property("ActiveState"), m.property("NRestarts"))
		}
		m.await("end of the old process", func() bool { _, err := m.try("test", "-e", "/proc/"+before); return err != nil })
		before = now
	}
	m.run("sh", "-c", "cp /etc/millrace/gateway.yaml /tmp/good; echo 'wrong: 1' >>/etc/millrace/gateway.yaml")
	if out, err := m.try("systemctl", "reload", "millrace-gateway"); err == nil || m.property("MainPID") != before || m.property("ActiveState") != "active" {
		t.Errorf("a wrong file: %v, %s", err, out)
	}
	m.run("cp", "/tmp/good", "/etc/millrace/gateway.yaml")
	l.end(t)

	m.run("kill", "-9", before)
	m.await("restart", func() bool { return m.property("NRestarts") == "1" && m.property("ActiveState") == "active" })
	m.run("sh", "-c", "cp /usr/local/bin/millrace /usr/local/bin/next && mv /usr/local/bin/next /usr/local/bin/millrace")
	m.run("systemctl", "reload", "millrace-gateway")
	m.run("systemctl", "stop", "millrace-gateway")
	if state, result := m.property("ActiveState"), m.property("Result"); state != "inactive" || result != "success" {
		t.Errorf("after a stop: %s, %s", state, result)
	}
	if _, err := m.try("pidof", "millrace"); err == nil {
		t.Error("a process is left")
	}
}

// requests are those of clients that have a connection for each.
type requests struct {
	stop     context.CancelFunc
	all      sync.WaitGroup
	answered atomic.Int64
	failed   chan error
}

func requestsTo(t *testing.T, addr string) *requests {
	ctx, stop := context.WithCancel(t.Context())
	l := &requests{stop: stop, failed: make(chan error, 100)}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	for range 4 {
		l.all.Go(func() {
			for ctx.Err() == nil {
				resp, err := client.Get("http://" + addr + "/")
				if err == nil {
					body, _ := io.ReadAll(resp.Body)
					if resp.Body.Close(); resp.StatusCode != http.StatusOK || string(body) != "one" {
						err = fmt.Errorf("%d %q", resp.StatusCode, body)
					}
				}
				if err == nil {
					l.answered.Add(1)
					continue
				}
				select {
				case l.failed <- err:
				default:
				}
			}
		})
	}
	return l
}

func (l *requests) end(t *testing.T) {
	t.Helper()
	l.stop()
	l.all.Wait()
	if n := len(l.failed); n > 0 || l.answered.Load() == 0 {
		t.Errorf("%d requests answered, %d or more failed", l.answered.Load(), n)
	}
	for len(l.failed) > 0 {
		t.Error(<-l.failed)
	}
	t.Logf("%d requests answered", l.answered.Load())
}
