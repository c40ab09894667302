package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/internal/testkit/testnet"
)

const stackConfig = "devices: [{name: st0, driver: afpacket, addresses: [198.18.0.2/24]}]\nservices: SERVICES\ncontrol: {socket: SOCKET}\n"

// TestStackReloadsByCommandAndSignal has a service added by each, and a file with errors leaves all as it was.
func TestStackReloadsByCommandAndSignal(t *testing.T) {
	n := testnet.For(t, "mr-cli-reload")
	client, host := n.Namespace("client"), n.Namespace("host")
	for _, err := range []error{n.Link(client, "eth0", host, "st0"), client.NoOffload("eth0"), client.Up("eth0", "198.18.0.1/24"), host.Up("st0"), host.Up("lo")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	testnet.Program(t, "curl")
	file, socket := filepath.Join(t.TempDir(), "stack.yaml"), filepath.Join(t.TempDir(), "s.sock")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "SOCKET", socket)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	with := func(services string) string {
		return strings.ReplaceAll(stackConfig, "SERVICES", services) + "metrics: {listen: \"127.0.0.1:9100\"}\n"
	}
	served := func(port string) bool {
		out, err := client.Run("curl", "-sS", "--max-time", "5", "-o", "/dev/null", "-w", "%{http_code}", "http://198.18.0.2:"+port+"/")
		return err == nil && out == "200"
	}
	write(with("[http]"))
	var out, log buffer
	cmd := program("stack", "up", "-c", file)
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := host.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	log.until(t, "state=up")
	if !served("80") || served("8080") {
		t.Fatalf("before the reload:\n%s", &log)
	}
	write(with("[http, {service: http, port: 8080}]"))
	if code, out, err := run("stack", "reload", "--socket", socket); code != exitOK || out != "the new configuration is in use\n" {
		t.Fatalf("code %d, %q %q", code, out, err)
	}
	if !served("80") || !served("8080") {
		t.Errorf("after the reload:\n%s", &log)
	}
	write(with("[http, {service: http, port: 8081}]"))
	_ = cmd.Process.Signal(syscall.SIGHUP)
	log.until(t, "msg=reload result=\"the new configuration is in use\"")
	if !served("8081") || served("8080") {
		t.Errorf("after SIGHUP:\n%s", &log)
	}
	for text, want := range map[string]int{with("[htpt]"): exitConfig, strings.Replace(with("[http]"), "st0", "st1", 1): exitFailure} {
		write(text)
		if code, out, err := run("stack", "reload", "--json", "--socket", socket); code != want || out != "" || err == "" {
			t.Errorf("code %d, want %d: %q %q", code, want, out, err)
		}
	}
	if scrape, err := host.Run("curl", "-sS", "--max-time", "5", "http://127.0.0.1:9100/metrics"); err != nil || !strings.Contains(scrape, "millrace_") {
		t.Errorf("metrics: %v %.300s", err, scrape)
	}
	if !served("8081") {
		t.Error("a file with errors has changed the services")
	}
	if code, _, err := run("stack", "down", "--socket", socket); code != exitOK {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, &log)
	}
}

func TestStackUpReadsStandardInput(t *testing.T) {
	text := strings.NewReplacer("SERVICES", "all", "SOCKET", "/run/x.sock").Replace(stackConfig)
	if code, out, err := runWith(text, "stack", "up", "--check", "-c", "-"); code != exitOK || !strings.Contains(out, "the configuration is valid\n") {
		t.Errorf("code %d, %q, %q", code, out, err)
	}
	if code, _, err := runWith("x-a: 1\n"+text+"engine: gpu\n", "stack", "up", "--check", "-c", "-"); code != exitConfig || !strings.Contains(err, "<stdin>:5:9: engine cannot be") {
		t.Errorf("code %d, %q", code, err)
	}
	code, out, _ := runWith(text+"x: 1\n", "stack", "up", "--check", "--json", "-c", "-")
	var r stackCheckResult
	decode(t, out, &r)
	if code != exitConfig || r.Valid || len(r.Errors) != 1 || r.Errors[0].File != "<stdin>" {
		t.Errorf("code %d, %+v", code, r)
	}
	f := stackFlags{config: standardInput}
	if f.reload(false) != nil {
		t.Error("standard input would be read again at a reload")
	}
}

// TestExtraProcessorOfFileAndFlag has either say so.
func TestExtraProcessorOfFileAndFlag(t *testing.T) {
	text := strings.NewReplacer("SERVICES", "all", "SOCKET", "/run/x.sock").Replace(stackConfig)
	for i := range 4 {
		file, flag, in := i&1 != 0, i&2 != 0, text
		if file {
			in += "extra_processor: true\n"
		}
		f := stackFlags{config: standardInput, in: strings.NewReader(in), extraProcessor: flag}
		cfg, err := f.load(false)
		if err != nil || cfg.ExtraProcessor != (file || flag) {
			t.Errorf("file %v, flag %v: %+v, %v", file, flag, cfg, err)
		}
	}
}
