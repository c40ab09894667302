package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// vhostFolder returns a folder for sockets, whose names must be short.
func vhostFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mr-vhost")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// begin starts the program, and ends it with the test.
func begin(t *testing.T, log *buffer, args ...string) {
	t.Helper()
	cmd := program(args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { endProgram(t, cmd, log) })
}

// endProgram interrupts a program, which ends without an error.
func endProgram(t *testing.T, cmd *exec.Cmd, log *buffer) {
	t.Helper()
	_ = cmd.Process.Signal(syscall.SIGINT)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %v\n%s", cmd.Args, err, log)
	}
}

// vhostGateway starts a gateway with its own stack on a device, which serves a file of the bytes that it returns.
func vhostGateway(t *testing.T, dir, device string) (content []byte) {
	t.Helper()
	content = make([]byte, 3<<20)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(content)
	file := filepath.Join(dir, "gw.yaml")
	config := fmt.Sprintf("admin: {socket: %s/admin}\ndevices: [{name: %q, addresses: 198.18.0.1/24}]\nstack: devices\n"+
		"listeners: [{name: a, address: \"198.18.0.1:80\", protocol: HTTP}]\n"+
		"routes: [{name: r, rules: [{static: {root: %s/www}}]}]\n", dir, device, dir)
	for _, err := range []error{
		os.Mkdir(filepath.Join(dir, "www"), 0o755), os.WriteFile(filepath.Join(dir, "www", "big"), content, 0o644),
		os.WriteFile(file, []byte(config), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var log buffer
	begin(t, &log, "gateway", "-c", file)
	log.until(t, "msg=gateway")
	return content
}

// vhostDownload gets the file by a stack of its own on a device, as a guest would.
func vhostDownload(t *testing.T, dir, device string, want []byte) {
	t.Helper()
	out := filepath.Join(dir, "out")
	text, err := program("get", "--max-time", "60s", "--stack", device, "--addr", "198.18.0.3/24", "-o", out, "http://198.18.0.1/big").CombinedOutput()
	if err != nil {
		t.Fatalf("get: %v\n%s", err, text)
	}
	if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes of %d, %v", len(got), len(want), err)
	}
}

// TestGuestDownloadsThroughGateway downloads a file through a gateway's vhost-user port, twice: the second guest connects when the
// first is gone.
func TestGuestDownloadsThroughGateway(t *testing.T) {
	t.Parallel()
	dir := vhostFolder(t)
	content := vhostGateway(t, dir, "vhost:"+dir+"/s")
	vhostDownload(t, dir, "virtio:"+dir+"/s", content)
	vhostDownload(t, dir, "virtio:"+dir+"/s,ring=packed", content)
}

// TestGuestsReachEachOtherThroughForward has a guest download from another one: forward connects their sockets, in both modes.
func TestGuestsReachEachOtherThroughForward(t *testing.T) {
	t.Parallel()
	dir := vhostFolder(t)
	content := vhostGateway(t, dir, "virtio:"+dir+"/b,mode=server")
	var log buffer
	begin(t, &log, "forward", "vhost:"+dir+"/a", "vhost:"+dir+"/b,mode=client")
	vhostDownload(t, dir, "virtio:"+dir+"/a", content)
}

// TestWrongSockets names sockets that cannot be.
func TestWrongSockets(t *testing.T) {
	for _, c := range []struct {
		code int
		args []string
	}{
		{exitFailure, []string{"forward", "vhost:relative", "vhost:/tmp/b"}},
		{exitFailure, []string{"replay", "--to", "virtio:relative", sample(t)}},
		{exitUsage, []string{"stack", "up", "--socket", "", "--dev", "vhost:relative", "--addr", "198.18.0.1/24"}},
	} {
		if code, _, errs := run(c.args...); code != c.code || !strings.Contains(errs, `"relative" is no absolute path`) {
			t.Errorf("%v: code %d, %s", c.args, code, errs)
		}
	}
}
