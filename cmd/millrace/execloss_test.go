package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/stackpair"
	"github.com/millrace/millrace/shim"
)

// lossServer is a server that goes on after every error, as servers do, with a child that shares its listener. Both write a line when they
// are ready.
const lossServer = `
import os, socket, time
l = socket.create_server(("127.0.0.1", 7011))
os.fork()
os.write(1, b"ready\n")
while True:
    try: l.accept()
    except OSError: time.sleep(0.01)
`

// startsServer starts lossServer on a node of its own, and returns that.
func startsServer(t *testing.T, out *buffer, options ...string) (*shim.Server, *exec.Cmd) {
	t.Helper()
	p, err := stackpair.New(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	dir := t.TempDir()
	node, err := shim.New(shim.Config{Stack: p.A, Path: filepath.Join(dir, "s.shim.sock"), Name: "stack"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close() })
	args := append([]string{"exec", "--socket", filepath.Join(dir, "s.sock")}, options...)
	cmd := program(append(args, "--", "python3", "-c", lossServer)...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	for end := time.Now().Add(30 * time.Second); strings.Count(out.String(), "ready") < 2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not listen: %s", out)
		}
	}
	return node, cmd
}

// TestExecEndsWithItsNode: with --on-node-loss=end a server whose node has gone ends by SIGTERM, and so do its workers.
func TestExecEndsWithItsNode(t *testing.T) {
	library(t)
	var out buffer
	node, cmd := startsServer(t, &out, "--on-node-loss", "end")
	_ = node.Close()
	guard := time.AfterFunc(60*time.Second, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	err := cmd.Wait() // the worker has the pipe of the output, too
	var e *exec.ExitError
	if !errors.As(err, &e) || e.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM || !strings.Contains(out.String(), "--on-node-loss=end") {
		t.Errorf("it ended by %v: %s", err, &out)
	}
	if !guard.Stop() {
		t.Errorf("some of it goes on: %s", &out)
	}
}

// TestExecKeepsItsProgram: without the option the program goes on, as it decides itself.
func TestExecKeepsItsProgram(t *testing.T) {
	library(t)
	var out buffer
	node, cmd := startsServer(t, &out)
	_ = node.Close()
	for end := time.Now().Add(30 * time.Second); !strings.Contains(out.String(), "the node has ended"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not notice: %s", &out)
		}
	}
	if err := cmd.Process.Signal(syscall.Signal(0)); errors.Is(err, os.ErrProcessDone) {
		t.Errorf("it has ended: %s", &out)
	}
}
