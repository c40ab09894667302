package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestGatewayWithAFIFOAsConfigurationServesAndEnds puts a FIFO that nobody writes in the place of the file: a reload by
// signal and by command is refused, the service goes on, and SIGTERM ends the gateway.
func TestGatewayWithAFIFOAsConfigurationServesAndEnds(t *testing.T) {
	t.Parallel()
	client, middle, server := gatewaySite(t, "mr-cli-fifo")
	serve(t, server)
	dir := t.TempDir()
	file, socket := filepath.Join(dir, "gw.yaml"), filepath.Join(dir, "gw.sock")
	if err := os.WriteFile(file, fmt.Appendf(nil, gatewayConfig, socket, "afpacket", "afpacket"), 0o644); err != nil {
		t.Fatal(err)
	}
	var log buffer
	cmd := program("gateway", "-c", file)
	cmd.Stderr = &log
	if err := middle.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	awaitAnswer(t, client, &log)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	log.until(t, "the old configuration stays")
	if _, _, problem := tell(socket, exitFailure, "reload"); problem != "" {
		t.Error(problem)
	}
	if answer, err := ask(client); err != nil || answer != "served" {
		t.Errorf("%q, %v", answer, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("%v\n%s", err, &log)
		}
	case <-time.After(15 * time.Second):
		t.Fatalf("SIGTERM does not end it\n%s", &log)
	}
}
