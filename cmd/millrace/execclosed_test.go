package main

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// runs runs a program by exec to its end, and returns its output and exit code.
func (b *lossBed) runs(t *testing.T, options []string, words ...string) (string, int) {
	t.Helper()
	if _, err := exec.LookPath(words[0]); err != nil {
		t.Skip(err)
	}
	var out buffer
	cmd := b.start(t, &out, options, words...)
	guard := time.AfterFunc(60*time.Second, func() { _ = cmd.Process.Kill() })
	defer guard.Stop()
	_ = cmd.Wait() // the code follows
	return out.String(), cmd.ProcessState.ExitCode()
}

// TestExecClosedPorts: programs that ask whether a port is closed learn it, of the network and of the host's own addresses, by TCP and by
// what ICMP reports of UDP.
func TestExecClosedPorts(t *testing.T) {
	library(t)
	b := newLossBed(t)
	for _, address := range []string{"198.18.0.2", "198.18.0.1", "127.0.0.1"} {
		for _, tc := range []struct {
			words string
			says  string
			code  int
		}{
			{"nc -zv " + address + " 7019", "Connection refused", 1},
			{"nc -zvu " + address + " 7019", "", 1},
			{"traceroute -n -q 1 -w 9 -m 1 " + address, "\n 1  " + address + "  ", 0},
		} {
			t.Run(strings.ReplaceAll(tc.words, " ", ""), func(t *testing.T) {
				if out, code := b.runs(t, nil, strings.Fields(tc.words)...); code != tc.code || !strings.Contains(out, tc.says) {
					t.Errorf("code %d, %s", code, out)
				}
			})
		}
	}
}

// TestExecFindsItsHostFromAnotherFolder: the path of the control socket may be relative, and the program change its folder.
func TestExecFindsItsHostFromAnotherFolder(t *testing.T) {
	library(t)
	b := newLossBed(t)
	t.Chdir(b.dir)
	b.dir = "."
	out, code := b.runs(t, nil, "python3", "-c", `
import os, socket
os.chdir("/")
socket.create_server(("127.0.0.1", 7013))
print("listens")`)
	if code != 0 || !strings.Contains(out, "listens") {
		t.Errorf("code %d, %s", code, out)
	}
}
