package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/gateway/admin"
)

// TestGatewayWithAnUnreadLogServesAndEnds has a gateway log to a pipe that is full and that nobody reads:
// a dead backend goes out, requests are answered and SIGTERM ends it.
func TestGatewayWithAnUnreadLogServesAndEnds(t *testing.T) {
	t.Parallel()
	client, middle, server := gatewaySite(t, "mr-cli-mute")
	serve(t, server)
	dir := t.TempDir()
	file, socket := filepath.Join(dir, "gw.yaml"), filepath.Join(dir, "gw.sock")
	text := fmt.Sprintf(gatewayConfig, socket, "afpacket", "afpacket") + "metrics: {listen: \"127.0.0.1:9100\"}\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	size, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 4096)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	cmd := program("gateway", "-c", file)
	cmd.Stderr = w
	if err := middle.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	w.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	sometime(t, "the service answers", func() bool { answer, err := ask(client); return err == nil && answer == "served" })
	healthy := func() (ok bool, problem string) {
		var st admin.Status
		_, out, problem := tell(socket, exitOK, "status", "--json")
		if problem == "" {
			if err := json.Unmarshal([]byte(out), &st); err != nil {
				return false, err.Error()
			}
			ok = st.Gateway.Services[0].Backends[0].Healthy
		}
		return ok, problem
	}
	for range 3 { // more than one record
		if _, err := server.Run("ip", "link", "set", "eth0", "down"); err != nil {
			t.Fatal(err)
		}
		sometime(t, "the dead backend goes out", func() bool { ok, problem := healthy(); return !ok && problem == "" })
		if _, err := server.Run("ip", "link", "set", "eth0", "up"); err != nil {
			t.Fatal(err)
		}
		sometime(t, "the backend returns", func() bool { ok, problem := healthy(); return ok && problem == "" })
	}
	if err := os.WriteFile(file, []byte("services: 7\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil { // its errors are printed too
		t.Fatal(err)
	}
	sometime(t, "the reload is refused", func() bool {
		_, out, problem := tell(socket, exitOK, "status")
		return problem == "" && strings.Contains(out, "the last reload was rejected")
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the gateway ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("SIGTERM does not end a gateway whose log is not read")
	}
}
