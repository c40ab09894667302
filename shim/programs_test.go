package shim

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// The programs of testdata/client.c run with the preloaded library, by sockets (tier 0) and by rings (tier 1).

var compiled struct {
	sync.Once
	dir string
	err error
}

func TestMain(m *testing.M) {
	code := m.Run()
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
			out, err := exec.Command("cc", "-std=c11", "-O1", "-Wall", "-pthread", "-o", filepath.Join(compiled.dir, "client"), "testdata/client.c").CombinedOutput()
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

// start runs the program with the library until the test ends.
func (b *bed) start(t testing.TB, rings bool, args ...string) *exec.Cmd {
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

func TestProgramEcho(t *testing.T) {
	tiers(t, func(t *testing.T, rings bool) {
		b := newBed(t, nil)
		at := b.serve(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
		begin := time.Now()
		if err := b.start(t, rings, append([]string{"echo"}, at...)...).Run(); err != nil {
			t.Fatal(err)
		}
		t.Logf("%v for one round trip", time.Since(begin)/2000)
		if n := b.Stats(); (n.Rings == 1) != rings || n.BytesToStack != 2000*64 || n.BytesToProgram != 2000*64 {
			t.Errorf("%+v", n)
		}
		until(t, "the socket is released", func() bool { return b.Stats().Sockets == 0 })
	})
}
