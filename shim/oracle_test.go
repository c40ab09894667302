package shim

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// oracleParts are the arguments of the program of testdata/oracle.c.
var oracleParts = []string{
	"refused", "refused-later", "refused-at-once", "connected", "resets", "halves", "fresh", "urgent", "pointers", "ended", "ended-unread", "ended-write",
}

// oracleMode is how the program reaches itself, and the lines that may differ from the kernel's stack.
type oracleMode struct {
	name        string
	loop, rings bool
	differ      []string
}

var oracleModes = []*oracleMode{
	{name: "pair", differ: []string{ // docs/design/035-shim-cost.md: the kernel joins the two by AF_UNIX
		"resets: SO_ERROR after SO_LINGER of 0: 0",
		"ended: the first write: -1 EPIPE", "ended: SIGPIPE: 2",
		"ended-unread: the first write: -1 EPIPE", "ended-unread: SIGPIPE: 2",
		"ended-write: the first write: -1 EPIPE", "ended-write: SIGPIPE: 2", "ended: recv of the peer: 0",
	}},
	{name: "loop", loop: true},
	{name: "rings", loop: true, rings: true},
	{name: "direct", rings: true, differ: []string{"resets: SO_ERROR after SO_LINGER of 0: 0", "ended: recv of the peer: 0"}},
}

// begin starts a server of the mode, and returns the environment in which programs use it by the library.
func (m *oracleMode) begin(t *testing.T, lib string) []string {
	t.Helper()
	b := newBed(t, func(c *Config) { c.ThroughLoop = m.loop })
	env := []string{"LD_PRELOAD=" + lib, "MILLRACE_SHIM=" + b.cfg.Path}
	if m.rings {
		env = append(env, "MILLRACE_SHIM_RINGS=1")
	}
	return env
}

// oracle runs a part of the program, and returns what it prints.
func oracle(t *testing.T, program, part string, env ...string) []string {
	t.Helper()
	out, failure := spawn(t, filepath.Join(compiled.dir, program), env, part)
	if failure != "" {
		t.Errorf("%s: %s", part, failure)
	}
	return strings.Split(strings.TrimSpace(out), "\n")
}

// compileOracle makes a program of testdata.
func compileOracle(t *testing.T, name string) {
	t.Helper()
	build := exec.Command("cc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Wno-nonnull", "-o", filepath.Join(compiled.dir, name), "testdata/"+name+".c")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestBatches: sendmmsg(2), recvmmsg(2) and options that need rights give what they give on the kernel's stack.
func TestBatches(t *testing.T) {
	_, lib := compileClient(t)
	compileOracle(t, "batches")
	for _, part := range []string{"receives", "receives-connected", "sends", "sends-connected", "options"} {
		t.Run(part, func(t *testing.T) {
			b := newBed(t, nil)
			want := oracle(t, "batches", part)
			got := oracle(t, "batches", part, "LD_PRELOAD="+lib, "MILLRACE_SHIM="+b.cfg.Path)
			for i, w := range want {
				if i >= len(got) || got[i] != w {
					t.Fatalf("line %d: %q, on the kernel's stack %q", i, got[min(i, len(got)-1)], w)
				}
			}
		})
	}
}

// TestOracle: calls in odd states give what they give on the kernel's stack.
func TestOracle(t *testing.T) {
	_, lib := compileClient(t)
	compileOracle(t, "oracle")
	want := map[string][]string{}
	for _, part := range oracleParts {
		want[part] = oracle(t, "oracle", part)
	}
	for _, mode := range oracleModes {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			env := mode.begin(t, lib)
			for _, part := range oracleParts {
				compareLines(t, part, oracle(t, "oracle", part, env...), want[part], mode.differ)
			}
		})
	}
}

// compareLines compares what a part has printed with what it printed on the kernel's stack, but for lines that may differ.
func compareLines(t *testing.T, part string, got, want, differ []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		g, w := "nothing", "nothing"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w && !slices.Contains(differ, part+": "+g) {
			t.Errorf("%s, line %d: %q, on the kernel's stack %q", part, i+1, g, w)
		}
	}
}

// TestRebind: sockets that are used again, after a disconnect or a failure, do what they do on the kernel's stack.
func TestRebind(t *testing.T) {
	_, lib := compileClient(t)
	compileOracle(t, "rebind")
	for _, part := range []string{"datagrams", "later", "at-once", "ended"} {
		want := asOlderKernels(oracle(t, "rebind", part))
		for _, mode := range oracleModes {
			t.Run(part+"/"+mode.name, func(t *testing.T) {
				t.Parallel()
				env := mode.begin(t, lib)
				compareLines(t, part, oracle(t, "rebind", part, env...), want, mode.differ)
			})
		}
	}
}

// asOlderKernels has a socket listen whose connection has failed, as other kernels do: one build of 6.18.44 refuses, where another
// did not. No other part is changed.
func asOlderKernels(lines []string) []string {
	begin := slices.Index(lines, "listen instead")
	if begin < 0 {
		return lines
	}
	for i := begin; i+1 < len(lines); i++ {
		if lines[i] == "listen: -1 EINVAL" && lines[i+1] == "accept: -1 EINVAL" {
			lines[i], lines[i+1] = "listen: 0", "accept: -1 EAGAIN"
			break
		}
	}
	return lines
}

// TestCorners: calls that few programs make give what they give on the kernel's stack, and the library says nothing wrong.
func TestCorners(t *testing.T) {
	_, lib := compileClient(t)
	compileOracle(t, "corners")
	for _, part := range []string{"long-options", "error-queue", "woken", "disconnected", "refusals", "ends", "control", "lengths", "early-options", "plain-calls", "more", "devices"} {
		want := oracle(t, "corners", part)
		for _, mode := range oracleModes {
			if part == "ends" && mode.name == "direct" {
				continue // SO_LINGER of 0 makes no reset there (docs/shim.md)
			}
			t.Run(part+"/"+mode.name, func(t *testing.T) {
				t.Parallel()
				env := mode.begin(t, lib)
				got := oracle(t, "corners", part, env...)
				if !slices.Equal(got, want) {
					t.Errorf("it printed\n%s\non the kernel's stack\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			})
		}
	}
}

// TestDatagramsOfSeveralCalls: MSG_MORE and UDP_CORK make one datagram, as on the kernel's stack.
func TestDatagramsOfSeveralCalls(t *testing.T) {
	_, lib := compileClient(t)
	compileOracle(t, "corks")
	for _, part := range []string{"connected", "unconnected", "option", "shared"} {
		t.Run(part, func(t *testing.T) {
			b := newBed(t, nil)
			want := oracle(t, "corks", part)
			got := oracle(t, "corks", part, "LD_PRELOAD="+lib, "MILLRACE_SHIM="+b.cfg.Path)
			if !slices.Equal(got, want) {
				t.Errorf("%s\non the kernel's stack:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// TestBytesThatWaitAreSentBeforeConnect: they are for the peer of before.
func TestBytesThatWaitAreSentBeforeConnect(t *testing.T) {
	_, lib := compileClient(t)
	compileOracle(t, "corks")
	b := newBed(t, nil)
	got := strings.Join(oracle(t, "corks", "moved", "LD_PRELOAD="+lib, "MILLRACE_SHIM="+b.cfg.Path), "\n")
	if want := "connect: 0\npiece: 5\nelsewhere: 0\nnew: 3\n  has come: 5 piece\nother\n  has come: 3 new"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestControlMessagesAsOnTheKernel: control messages of connected sockets too, UDP_SEGMENT, SO_TIMESTAMPING and the queue of errors give what
// they give on the kernel's stack.
func TestControlMessagesAsOnTheKernel(t *testing.T) {
	_, lib := compileClient(t)
	compileOracle(t, "cmsgs")
	for _, part := range []string{"before", "after", "addressed", "segments", "errors", "errors-connected", "too-long", "stamping", "stamping-sent", "stamping-sent-connected"} {
		for _, v6 := range []string{"", "-6"} {
			t.Run(part+v6, func(t *testing.T) {
				b := newBed(t, nil)
				want := oracle(t, "cmsgs", part+v6)
				got := oracle(t, "cmsgs", part+v6, "LD_PRELOAD="+lib, "MILLRACE_SHIM="+b.cfg.Path)
				if !slices.Equal(got, want) {
					t.Errorf("%s\non the kernel's stack:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			})
		}
	}
}

// TestErrorsStand: poll(2), epoll(7) and select(2) show an error of a datagram until SO_ERROR, a call or MSG_ERRQUEUE has taken it, also to
// programs that do not wait for datagrams, beside datagrams and behind them.
func TestErrorsStand(t *testing.T) {
	_, lib := compileClient(t)
	compileOracle(t, "standing")
	for _, part := range []string{"connected", "queue", "queue-connected"} {
		for _, v6 := range []string{"", "-6"} {
			t.Run(part+v6, func(t *testing.T) {
				b := newBed(t, nil)
				want := oracle(t, "standing", part+v6)
				got := oracle(t, "standing", part+v6, "LD_PRELOAD="+lib, "MILLRACE_SHIM="+b.cfg.Path)
				if !slices.Equal(got, want) {
					t.Errorf("%s\non the kernel's stack:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			})
		}
	}
}
