package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

// unit returns the settings of the systemd unit.
func unit(t *testing.T) map[string]string {
	t.Helper()
	f, err := os.Open("../../deploy/millrace-gateway.service")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	set := map[string]string{}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if key, value, ok := strings.Cut(sc.Text(), "="); ok && key[0] != '#' {
			set[key] = value
		}
	}
	return set
}

// TestCapabilitiesOfTheUnitSuffice runs the gateway as nobody with the capabilities of the systemd unit, and
// serves a connection by AF_XDP.
func TestCapabilitiesOfTheUnitSuffice(t *testing.T) {
	t.Parallel()
	u := unit(t)
	if u["CapabilityBoundingSet"] != u["AmbientCapabilities"] || u["NoNewPrivileges"] != "yes" {
		t.Errorf("bounding set %q, ambient %q", u["CapabilityBoundingSet"], u["AmbientCapabilities"])
	}
	if u["LimitMEMLOCK"] != "infinity" {
		t.Errorf("memory to lock: %q", u["LimitMEMLOCK"])
	}
	if u["ExecStartPre"] != "" || u["RestartPreventExitStatus"] != "2 3" || u["StartLimitIntervalSec"] != "0" {
		t.Errorf("a wrong file is tried again (only the main process's exit code prevents it), or another failure is not: %v", u)
	}
	caps := "-all,+ipc_lock" // in place of the limit, which not every container lets root raise
	for _, c := range strings.Fields(u["AmbientCapabilities"]) {
		caps += ",+" + strings.ToLower(strings.TrimPrefix(c, "CAP_"))
	}
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip("no setpriv (util-linux): ", err)
	}
	client, middle, server := gatewaySite(t, "mr-cli-unit")
	serve(t, server)
	dir := openDir(t)
	file, socket := filepath.Join(dir, "gw.yaml"), filepath.Join(dir, "gw.sock")
	if err := os.WriteFile(file, fmt.Appendf(nil, gatewayConfig, socket, "afxdp", "afxdp"), 0o644); err != nil {
		t.Fatal(err)
	}
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer notify.Close()
	if err := os.Chmod(filepath.Join(dir, "notify"), 0o777); err != nil {
		t.Fatal(err)
	}

	var log buffer
	cmd := program("gateway", "-c", file)
	cmd.Args = append([]string{
		"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs",
		"--inh-caps=" + caps, "--ambient-caps=" + caps, "--bounding-set=" + caps, openCopy(t, dir),
	}, cmd.Args[1:]...)
	cmd.Path = setpriv
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+filepath.Join(dir, "notify"))
	cmd.Stderr, cmd.Stdout = &log, &log
	if err := middle.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if err := notify.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	n, err := notify.Read(buf)
	if err != nil || string(buf[:n]) != "READY=1" {
		t.Fatalf("notified the service manager %q, %v\n%s", buf[:n], err, &log)
	}
	awaitAnswer(t, client, &log)
	if _, _, problem := tell(socket, exitOK, "stop"); problem != "" {
		t.Error(problem)
	}
	log.until(t, "received")
}

// openDir is a temporary folder that everybody may use.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "millrace-unit")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// openCopy copies the test binary to where everybody may run it, and returns its path.
func openCopy(t *testing.T, dir string) string {
	t.Helper()
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "millrace")
	if err := os.WriteFile(path, self, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// awaitAnswer asks until the service answers.
func awaitAnswer(t *testing.T, client *testnet.Namespace, log *buffer) {
	t.Helper()
	var last error
	for range 30 {
		answer, err := ask(client)
		if answer == "served" {
			return
		}
		last = err
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("no answer: %v\n%s", last, log)
}
