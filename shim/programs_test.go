package shim

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// The programs of testdata/client run with the preloaded library, by sockets (tier 0) and by rings (tier 1).

var compiled struct {
	sync.Once
	dir string
	err error
}

func TestMain(m *testing.M) {
	if os.Getenv(spawnerVariable) != "" {
		serveSpawner()
		return
	}
	code := m.Run()
	endSpawner()
	if compiled.dir != "" {
		os.RemoveAll(compiled.dir)
	}
	os.Exit(code)
}

// compileClient returns the path of the program, and that of the library.
func compileClient(t testing.TB) (program, library string) {
	t.Helper()
	lib, err := Library()
	if err != nil {
		t.Skipf("%v (`make preload` builds it)", err)
	}
	compiled.Do(func() {
		if compiled.dir, compiled.err = os.MkdirTemp("", "millrace-shim-test-"); compiled.err != nil {
			return
		}
		if compiled.err = os.WriteFile(filepath.Join(compiled.dir, "lib.so"), lib, 0o755); compiled.err == nil {
			sources, _ := filepath.Glob("testdata/client/*.c")
			args := append([]string{"-std=c11", "-O1", "-Wall", "-Wextra", "-pthread", "-o", filepath.Join(compiled.dir, "client")}, sources...)
			out, err := exec.Command("cc", args...).CombinedOutput()
			if compiled.err = err; err != nil {
				t.Logf("%s", out)
			}
		}
	})
	if compiled.err != nil {
		t.Fatal(compiled.err)
	}
	return filepath.Join(compiled.dir, "client"), filepath.Join(compiled.dir, "lib.so")
}

// program returns the program with the library. It is killed at the end of the test.
func (b *bed) program(t testing.TB, rings bool, args ...string) *exec.Cmd {
	t.Helper()
	path, lib := compileClient(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*limit)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+lib, "MILLRACE_SHIM="+b.cfg.Path)
	if rings {
		cmd.Env = append(cmd.Env, "MILLRACE_SHIM_RINGS=1")
	}
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = time.Second
	return cmd
}

// tiers runs f over both tiers.
func tiers(t *testing.T, f func(t *testing.T, rings bool)) {
	t.Run("sockets", func(t *testing.T) { f(t, false) })
	t.Run("rings", func(t *testing.T) { f(t, true) })
}

// serve calls f with each connection to a port of the other stack, which it returns as arguments.
func (b *bed) serve(t testing.TB, f func(net.Conn)) []string {
	t.Helper()
	l := b.listenPeer(t, "0")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				f(c)
			}()
		}
	}()
	at := netip.MustParseAddrPort(peerPort(l))
	_, port, _ := net.SplitHostPort(at.String())
	return []string{at.Addr().String(), port}
}

func echoAll(c net.Conn) { _, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c}) }

// TestPrograms runs programs against an echo server.
func TestPrograms(t *testing.T) {
	for _, tc := range []struct {
		args  string
		moved bool // back to the socket
	}{
		{"echo", false},
		{"transfer 10000000", false},
		{"level", false},
		{"edge", false},
		{"threads", false},
		{"forks", false},
		{"waits", false},
		{"files", false},
		{"reuse", false},
		{"exec", true},
		{"unread", true},
		{"ended", false},
		{"edges", false},
		{"borrowed", false},
		{"lost-wakeup", false},
		{"jumps", false},
		{"stays", false},
		{"waits-left", false},
		{"moving dup", true},
		{"moving dup2", true},
		{"moving fdopen", true},
		{"moving splice", true},
		{"moving passing", true},
		{"moving fork", true},
		{"moving spawn", true},
		{"moving vfork", false},
	} {
		t.Run(strings.ReplaceAll(tc.args, " ", "-"), func(t *testing.T) {
			tiers(t, func(t *testing.T, rings bool) {
				b := newBed(t, nil)
				words := strings.Fields(tc.args)
				args := append([]string{words[0]}, b.serve(t, echoAll)...)
				if err := b.program(t, rings, append(args, words[1:]...)...).Run(); err != nil {
					t.Fatal(err)
				}
				n := b.Stats()
				if (n.Rings > 0) != rings || (n.Moved > 0) != (rings && tc.moved) || n.Violations != 0 {
					t.Errorf("%+v", n)
				}
				until(t, "the sockets are released", func() bool { return b.Stats().Sockets == 0 })
			})
		})
	}
}

// TestFullRing: a program that writes to a peer that does not read sees its socket become writable when that reads.
func TestFullRing(t *testing.T) {
	tiers(t, func(t *testing.T, rings bool) {
		b := newBed(t, nil)
		signal := make(chan struct{})
		var once sync.Once
		args := b.serve(t, func(c net.Conn) {
			first := false
			once.Do(func() { first = true })
			if !first {
				close(signal)
				return
			}
			<-signal
			n, err := io.Copy(io.Discard, struct{ io.Reader }{c})
			if err != nil {
				t.Error(err)
			}
			_ = binary.Write(c, binary.NativeEndian, uint64(n))
		})
		if err := b.program(t, rings, append([]string{"full"}, args...)...).Run(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestRestarts: a write that waits goes on after a signal whose handler has SA_RESTART, and ends after another.
func TestRestarts(t *testing.T) {
	tiers(t, func(t *testing.T, rings bool) {
		b := newBed(t, nil)
		stop := make(chan struct{})
		args := b.serve(t, func(c net.Conn) {
			time.Sleep(300 * time.Millisecond) // signals meet a write that waits
			if _, err := io.CopyN(io.Discard, struct{ io.Reader }{c}, 8<<20); err != nil {
				t.Error(err)
			}
			_, _ = c.Write([]byte{1})
			<-stop
		})
		err := b.program(t, rings, append([]string{"restarts"}, args...)...).Run()
		close(stop)
		if err != nil {
			t.Fatal(err)
		}
	})
}

// TestResets: bytes before a reset of the peer are read, and then the reset.
func TestResets(t *testing.T) {
	tiers(t, func(t *testing.T, rings bool) {
		b := newBed(t, nil)
		args := b.serve(t, func(c net.Conn) {
			_, _ = io.ReadFull(c, make([]byte, 2))
			_, _ = c.Write([]byte("some bytes"))
			_ = c.(interface{ SetLinger(int) error }).SetLinger(0)
		})
		if err := b.program(t, rings, append([]string{"resets"}, args...)...).Run(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestSocketErrorWithoutRequests: SO_ERROR of a connection that has not failed is no request, and that of one that has is the
// cause.
func TestSocketErrorWithoutRequests(t *testing.T) {
	for name, unread := range map[string]int{"all read": 0, "some bytes": 100} {
		t.Run(name, func(t *testing.T) {
			tiers(t, func(t *testing.T, rings bool) {
				b := newBed(t, nil)
				var before atomic.Uint64
				args := b.serve(t, func(c net.Conn) {
					_, _ = io.ReadFull(c, make([]byte, 2))
					before.Store(b.Stats().Requests)
					_ = c.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
					_, _ = c.Write(make([]byte, unread))
					_ = c.(interface{ SetLinger(int) error }).SetLinger(0)
				})
				if err := b.program(t, rings, append([]string{"errors"}, args...)...).Run(); err != nil {
					t.Fatal(err)
				}
				if n := before.Load(); n == 0 || n > 20 {
					t.Errorf("%d requests before the reset", n)
				}
			})
		})
	}
}

// TestKilledProgram: a program that is killed while it writes has its connection closed, and leaves nothing.
func TestKilledProgram(t *testing.T) {
	tiers(t, func(t *testing.T, rings bool) {
		b := newBed(t, nil)
		ended := make(chan error, 1)
		args := b.serve(t, func(c net.Conn) {
			_, _ = c.Write([]byte("xxx")) // two are never read
			_, err := io.Copy(io.Discard, struct{ io.Reader }{c})
			ended <- err
		})
		cmd := b.program(t, rings, append([]string{"sleeper"}, args...)...)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		_, _ = bufio.NewReader(out).ReadString('\n')
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait()
		select {
		case err := <-ended:
			if err == nil {
				t.Error("a program that has not read all has ended, and its peer got no reset")
			}
		case <-time.After(limit):
			t.Fatal("the peer waits")
		}
		until(t, "the socket is released", func() bool { return b.Stats().Sockets == 0 })
	})
}

// TestServerProgram: a program accepts, forks and echoes.
func TestServerProgram(t *testing.T) {
	tiers(t, func(t *testing.T, rings bool) {
		b := newBed(t, nil)
		cmd := b.program(t, rings, "server", nodeAddr, "7000", "5")
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		_, _ = bufio.NewReader(out).ReadString('\n')
		for range 5 {
			c, err := b.peer.Dial("tcp", nodeAddr+":7000")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			sent := make([]byte, 300_000)
			for i := range sent {
				sent[i] = byte(i * i >> 8)
			}
			go func() { _, _ = c.Write(sent); _ = c.(interface{ CloseWrite() error }).CloseWrite() }()
			got, err := io.ReadAll(c)
			if err != nil || string(got) != string(sent) {
				t.Fatalf("%d bytes of %d, %v", len(got), len(sent), err)
			}
			c.Close()
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		if n := b.Stats(); (n.Rings == 5) != rings || n.Moved != 0 {
			t.Errorf("%+v", n)
		}
		until(t, "the sockets are released", func() bool { return b.Stats().Sockets == 0 })
	})
}

// TestEndOfTheNode: programs see the end of the node as a reset.
func TestEndOfTheNode(t *testing.T) {
	tiers(t, func(t *testing.T, rings bool) {
		b := newBed(t, nil)
		closed := make(chan error, 1) // a second Close, which the bed calls, does not wait for this one
		args := b.serve(t, func(c net.Conn) {
			_, _ = c.Write([]byte("some bytes"))
			time.Sleep(50 * time.Millisecond)
			closed <- b.Server.Close()
		})
		if err := b.program(t, rings, append([]string{"resets"}, args...)...).Run(); err != nil {
			t.Fatal(err)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}
