package shimtest

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// leaves is what a program prints that runs another one without the library.
const leaves = "millrace: /proc/self/exe leaves the stack"

// TestLives runs programs whose sockets outlive a thread, a process or a program, or that give up rights.
func TestLives(t *testing.T) {
	file := func(t *testing.T) string { return filepath.Join(t.TempDir(), "file") }
	folder := func(t *testing.T) string {
		dir := filepath.Join(t.TempDir(), "root")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	text := func(s string) func(*testing.T) string { return func(*testing.T) string { return s } }
	for _, tc := range []struct {
		part string
		args []func(*testing.T) string
		root bool
		says string
	}{
		{part: "nested-epoll"},
		{part: "exec"},
		{part: "dup2"},
		{part: "eintr"},
		{part: "threads-fork-exec", args: []func(*testing.T) string{text("20")}},
		{part: "vfork-spawn"},
		{part: "pass", says: leaves},
		{part: "close-range", args: []func(*testing.T) string{file}},
		{part: "close-by-number", args: []func(*testing.T) string{file}},
		{part: "few-descriptors"},
		{part: "no-channel"},
		{part: "other-user", args: []func(*testing.T) string{text("opened")}, root: true},
		{part: "other-user", args: []func(*testing.T) string{text("new")}, root: true},
		{part: "other-root", args: []func(*testing.T) string{folder, text("opened")}, root: true},
		{part: "other-root", args: []func(*testing.T) string{folder, text("new")}, root: true},
		{part: "other-network", args: []func(*testing.T) string{folder, text("libc")}, root: true},
		{part: "other-network", args: []func(*testing.T) string{folder, text("syscall")}, root: true},
		{part: "sandbox"},
		{part: "data-sandbox"},
		{part: "no-unix", says: "millrace: a sandbox forbids AF_UNIX sockets"},
		{part: "preinit"},
	} {
		t.Run(tc.part, func(t *testing.T) {
			if tc.root && os.Geteuid() != 0 {
				t.Skip("it needs root")
			}
			b := newBed(t, 1, nil)
			b.services()
			onTiers(t, func(t *testing.T, env []string) {
				b := b.with(t, env)
				args := []string{tc.part}
				for _, a := range tc.args {
					args = append(args, a(t))
				}
				b.runs(args...).saidOnly(tc.says)
				b.clean()
			})
		})
	}
}

// TestDaemon: a program that has closed all descriptors and become a daemon opens new sockets.
func TestDaemon(t *testing.T) { onTiers(t, daemon) }

func daemon(t *testing.T, env []string) {
	b := newBed(t, 1, nil).with(t, env)
	b.services()
	file := filepath.Join(t.TempDir(), "file")
	b.runs("daemon", file)
	until(t, "the daemon is done", func() bool {
		text, err := os.ReadFile(file)
		return err == nil && string(text) == "done"
	})
	b.clean()
}

// TestForkAfterListen: children accept from one listener that the parent has closed.
func TestForkAfterListen(t *testing.T) { onTiers(t, forkAfterListen) }

func forkAfterListen(t *testing.T, env []string) {
	const each = 5
	b := newBed(t, 1, nil).with(t, env)
	p := b.start("fork-after-listen", "8080", "5")
	p.says("listening")
	var all sync.WaitGroup
	for range 3 * each {
		all.Go(func() {
			c, err := b.B.Dial("tcp", "198.18.0.1:8080")
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			if _, err := c.Write([]byte("hello")); err != nil {
				t.Error(err)
			}
			_ = c.(interface{ CloseWrite() error }).CloseWrite()
			if got, err := io.ReadAll(c); err != nil || string(got) != "hello" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	all.Wait()
	p.ends()
	b.clean()
}

// TestKilledSender: the peer gets what the program wrote before SIGKILL, and then FIN.
func TestKilledSender(t *testing.T) { onTiers(t, killedSender) }

func killedSender(t *testing.T, env []string) {
	b := newBed(t, 1, nil).with(t, env)
	l, err := b.B.Listen("tcp", ":1000")
	if err != nil {
		t.Fatal(err)
	}
	p := b.start("sender", "1000")
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	first := make([]byte, 1<<20)
	if _, err := io.ReadFull(c, first); err != nil {
		t.Fatal(err)
	}
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(c)
	if err != nil {
		t.Errorf("behind %d bytes: %v", len(rest), err)
	}
	for i, v := range append(first, rest...) {
		if v != byte(i) {
			t.Fatalf("byte %d is %#x", i, v)
		}
	}
	b.clean()
}

// TestKilledReceiver: the peer gets a reset, because the program has not read all.
func TestKilledReceiver(t *testing.T) { onTiers(t, killedReceiver) }

func killedReceiver(t *testing.T, env []string) {
	b := newBed(t, 1, nil).with(t, env)
	b.services()
	ended := make(chan error, 1)
	err := serveTCP(b.B, "1000", func(c net.Conn) {
		for {
			if _, err := c.Write(make([]byte, 8192)); err != nil {
				ended <- err
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	p := b.start("receiver", "1000")
	p.says("reads")
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the peer sees %v", err)
	}
	b.clean()
}

// node starts a node in a process of its own.
func node(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), nodeVariable+"="+path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadBytes('\n'); err != nil || !bytes.Equal(line, []byte("ready\n")) {
		t.Fatalf("%q, %v", line, err)
	}
	return cmd
}

// TestNodeRestarts: its end by SIGKILL is ECONNRESET and ENETDOWN, never a hang; the next one serves the same program.
func TestNodeRestarts(t *testing.T) { onTiers(t, nodeRestarts) }

func nodeRestarts(t *testing.T, env []string) {
	compiled(t)
	path := socketPath(t)
	n := node(t, path)
	p := start(t, path, env, "restart")
	p.says("up")
	if err := n.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = n.Wait()
	p.says("down")
	node(t, path)
	if err := p.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	p.ends()
	for _, line := range []string{"millrace: the node has ended", "millrace: the node does not answer"} {
		if strings.Count(p.out.String(), line) != 1 {
			t.Errorf("it said %q", &p.out)
		}
	}
}

// TestSeveralLoops: programs with sockets of all kinds on nodes of several loops, where connections and shards of UDP
// sockets are on different ones.
func TestSeveralLoops(t *testing.T) {
	for _, loops := range []int{2, 4} {
		t.Run(strconv.Itoa(loops), func(t *testing.T) {
			b := newBed(t, loops, nil)
			b.services()
			onTiers(t, func(t *testing.T, env []string) {
				b := b.with(t, env)
				for _, args := range [][]string{
					{"unconnected"},
					{"connect-error"},
					{"unreachable"},
					{"nested-epoll"},
					{"exec"},
					{"eintr"},
					{"threads-fork-exec", "10"},
					{"pass"},
					{"sandbox"},
					{"udp-peers"},
					{"self-connect"},
				} {
					says := ""
					if args[0] == "pass" {
						says = leaves
					}
					b.runs(args...).saidOnly(says)
					b.clean()
				}
			})
		})
	}
}
