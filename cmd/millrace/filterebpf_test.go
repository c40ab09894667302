package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/testkit/testnet"
	"github.com/millrace/millrace/pmd/xdp"
)

// filterSite is two hosts on a wire, and a folder where the first command mounts a BPF file system.
type filterSite struct {
	t         *testing.T
	near, far *testnet.Namespace
	root      string
	out, in   int // packet sockets of far and near
}

const filterObjects = "../../filter/ebpf/testdata/objects/"

func newFilterSite(t *testing.T) *filterSite {
	n := testnet.For(t, "mr-cli-ebpf")
	s := &filterSite{t: t, near: n.Namespace("near"), far: n.Namespace("far"), root: t.TempDir()}
	for _, ns := range []*testnet.Namespace{s.near, s.far} { // no frames but the test's
		if err := ns.Sysctl("net.ipv6.conf.default.disable_ipv6", "1"); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(n.Link(s.near, "eth0", s.far, "eth0"), s.near.Up("eth0"), s.far.Up("eth0")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(s.root, unix.MNT_DETACH) })
	s.out, s.in = s.socket(s.far), s.socket(s.near)
	return s
}

// testEtherType is that of the frames that the test sends: for local experiments (IEEE 802).
const testEtherType = 0x88b5

// socket opens a packet socket on eth0 of a host.
func (s *filterSite) socket(ns *testnet.Namespace) (fd int) {
	s.t.Helper()
	const proto = testEtherType&0xff<<8 | testEtherType>>8
	err := ns.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: proto, Ifindex: interfaceIndex("eth0")})
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func interfaceIndex(name string) int {
	req, err := unix.NewIfreq(name)
	if err != nil {
		return 0
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	if unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, req) != nil {
		return 0
	}
	return int(req.Uint32())
}

// send has the far host send frames.
func (s *filterSite) send(n int) {
	b := make([]byte, 60)
	copy(b, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, testEtherType >> 8, testEtherType & 0xff})
	for range n {
		for {
			_, err := unix.Write(s.out, b)
			if err == nil {
				break
			}
			if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENOBUFS) {
				s.t.Error(err)
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// passed counts the frames that have come to the near host, until want have or time is over.
func (s *filterSite) passed(want int, wait time.Duration) (n int) {
	buf := make([]byte, 2048)
	for end := time.Now().Add(wait); n < want && time.Now().Before(end); {
		if _, err := unix.Read(s.in, buf); err == nil {
			n++
			continue
		}
		time.Sleep(time.Millisecond)
	}
	return n
}

// run runs the program in the near host, in a process of its own that has ended when run returns.
func (s *filterSite) run(args ...string) (code int, out, err string) {
	s.t.Helper()
	cmd := program(append([]string{"filter"}, args...)...)
	cmd.Env = append(cmd.Env, "LIBXDP_BPFFS="+s.root)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	if err := s.near.Start(cmd); err != nil {
		s.t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), o.String(), e.String()
}

// must runs a command that succeeds and says nothing on standard error.
func (s *filterSite) must(args ...string) (out string) {
	s.t.Helper()
	code, out, stderr := s.run(args...)
	if code != 0 || stderr != "" {
		s.t.Fatalf("%v: exit code %d\n%s%s", args, code, out, stderr)
	}
	return out
}

// fails runs a command that fails with an exit code, and checks what it says in how many lines.
func (s *filterSite) fails(want, lines int, says string, args ...string) {
	s.t.Helper()
	code, out, stderr := s.run(args...)
	if code != want || out != "" || !strings.Contains(stderr, says) || lines > 0 && strings.Count(stderr, "\n") != lines {
		s.t.Errorf("%v: exit code %d, want %d with %q in %d lines\n%s%s", args, code, want, says, lines, out, stderr)
	}
}

// as runs a command with --json and decodes what it prints, whose schema is checked.
func (s *filterSite) as(v any, args ...string) {
	s.t.Helper()
	text := s.must(append(args, "--json")...)
	var head struct{ Schema int }
	if err := errors.Join(json.Unmarshal([]byte(text), &head), json.Unmarshal([]byte(text), v)); err != nil || head.Schema != schemaVersion {
		s.t.Fatalf("%v: schema %d, %v\n%s", args, head.Schema, err, text)
	}
}

// TestFilterProgramsEndToEnd runs what docs/ebpf.md shows, each command in a process of its own.
func TestFilterProgramsEndToEnd(t *testing.T) {
	t.Parallel()
	s := newFilterSite(t)
	code, out, stderr := s.run("load", filterObjects+"drop.o")
	if strings.Contains(stderr, "operation not permitted") && os.Getenv("MILLRACE_MUST_NETNS") == "" {
		t.Skip(stderr)
	}
	if code != 0 || !strings.Contains(stderr, "mounted the BPF file system at "+s.root) || !strings.HasPrefix(out, "drop/drop_all: program ") {
		t.Fatalf("exit code %d\n%s%s", code, out, stderr)
	}
	s.fails(1, 1, `object "drop": it exists already`, "load", filterObjects+"drop.o")
	s.send(20)
	if n := s.passed(20, 20*time.Second); n != 20 {
		t.Errorf("%d of 20 frames passed a program that is only loaded", n)
	}
	if out := s.must("attach", "drop", "--xdp", "eth0"); out != "drop is attached to eth0 at xdp, native\n" {
		t.Errorf("attach: %q", out)
	}
	s.send(20)
	if n := s.passed(1, 200*time.Millisecond); n != 0 {
		t.Error("a frame passed a program that drops, whose command has ended")
	}
	s.listed()
	s.counted()
	s.replaced()
	s.fails(1, 1, "drop_all at xdp of eth0", "unload", "drop")
	s.must("detach", "drop", "--xdp", "eth0")
	s.send(20)
	if n := s.passed(20, 20*time.Second); n != 20 {
		t.Errorf("%d of 20 frames passed after detach", n)
	}
	s.must("unload", "drop")
	if left, _ := filepath.Glob(s.root + "/millrace/objects/*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// listed checks list, which names what is attached.
func (s *filterSite) listed() {
	s.t.Helper()
	var l filterList
	s.as(&l, "list", "eth0")
	if len(l.Objects) != 1 || len(l.Hooks) != 1 || l.Hooks[0].Hook != "xdp" || len(l.Hooks[0].Chain) != 1 || l.Hooks[0].Chain[0].Object != "drop/drop_all" {
		s.t.Errorf("list: %+v", l)
	}
	if out := s.must("list"); !strings.Contains(out, "drop_all") || !strings.Contains(out, "INTERFACE") {
		s.t.Errorf("list: %s", out)
	}
}

// counted checks stats, which counts runs while frames come.
func (s *filterSite) counted() {
	s.t.Helper()
	stop, done := make(chan bool), make(chan bool)
	go s.stream(stop, done, new(int))
	var l filterStats
	s.as(&l, "stats", "eth0", "--time", "300ms")
	close(stop)
	<-done
	if len(l.Programs) != 1 || l.Programs[0].Runs == 0 || l.Programs[0].Time == 0 || l.Seconds != 0.3 {
		s.t.Errorf("stats: %+v", l)
	}
}

// stream sends frames until stop is closed, and counts them.
func (s *filterSite) stream(stop, done chan bool, sent *int) {
	defer close(done)
	for {
		select {
		case <-stop:
			return
		default:
			s.send(10)
			*sent += 10
		}
	}
}

// replaced replaces the program by itself while frames come: one that met no program would pass.
func (s *filterSite) replaced() {
	s.t.Helper()
	stop, done, sent := make(chan bool), make(chan bool), 0
	go s.stream(stop, done, &sent)
	for range 3 {
		var r struct{ Places []string }
		s.as(&r, "replace", "drop", filterObjects+"drop.o")
		if len(r.Places) != 1 || r.Places[0] != "drop_all at xdp of eth0" {
			s.t.Errorf("replaced %v", r.Places)
		}
	}
	close(stop)
	<-done
	if n := s.passed(1, 200*time.Millisecond); n != 0 || sent < 100 {
		s.t.Errorf("%d of %d frames passed while the program was replaced", n, sent)
	}
}

// TestFilterMapsAndTCEndToEnd counts frames at tc and reads and writes the counters.
func TestFilterMapsAndTCEndToEnd(t *testing.T) {
	s := newFilterSite(t)
	if code, _, stderr := s.run("load", "--name", "c", filterObjects+"count.o"); code != 0 {
		t.Skip(stderr)
	}
	var at attachResult
	s.as(&at, "attach", "c/count_in", "--tc", "eth0")
	if want := (attachResult{"eth0", "tc", at.Mode, "c/count_in"}); at != want || at.Mode == "" {
		t.Errorf("attach: %+v", at)
	}
	s.send(30)
	if n := s.passed(30, 20*time.Second); n != 30 {
		t.Fatalf("%d of 30 frames came", n)
	}
	var e filterEntries
	s.as(&e, "map", "dump", "c/hits")
	if len(e.Entries) != 4 || string(e.Entries[2].Value) != "30" {
		t.Errorf("dump: %s", e.Entries)
	}
	if out := s.must("map", "update", "c/hits", "--key", "2", "--value", "7"); out != "c/hits: 1 written\n" {
		t.Errorf("update: %q", out)
	}
	if out := s.must("map", "dump", "c/hits"); !strings.Contains(out, `{"key":2,"value":7}`) {
		t.Errorf("dump: %s", out)
	}
	s.must("replace", "c", filterObjects+"count.o")
	s.send(1)
	if n := s.passed(1, 20*time.Second); n != 1 {
		t.Fatal("no frame came after replace")
	}
	s.as(&e, "map", "dump", "c/hits")
	if string(e.Entries[2].Value) != "8" {
		t.Errorf("the map after replace: %s", e.Entries)
	}
	s.fails(1, 1, "beyond its 4 entries", "map", "update", "c/hits", "--key", "9", "--value", "1")
	s.fails(1, 1, "there are hits", "map", "dump", "c/hist")
	s.fails(1, 1, "count_in at tcx of eth0", "unload", "c")
	if out := s.must("detach", "--tc", "eth0"); out != "c/count_in is off eth0\n" {
		t.Errorf("detach: %q", out)
	}
	s.fails(1, 1, "eth0 has no program of a loaded object at tc", "detach", "--tc", "eth0")
	s.must("unload", "c")
}

// TestFilterRefusalsNameTheReason makes an operator's mistakes.
func TestFilterRefusalsNameTheReason(t *testing.T) {
	s := newFilterSite(t)
	if code, _, stderr := s.run("load", filterObjects+"drop.o"); code != 0 {
		t.Skip(stderr)
	}
	s.must("load", filterObjects+"count.o")
	s.fails(2, 1, "name one interface with --xdp or with --tc", "attach", "drop")
	s.fails(1, 1, "interface eth9", "attach", "drop", "--xdp", "eth9")
	s.fails(2, 1, "count/count_then_drop, count/count_xdp", "attach", "count", "--xdp", "eth0")
	s.fails(2, 1, "no program for tc", "attach", "drop", "--tc", "eth0")
	s.fails(1, 1, "loaded are count, drop", "detach", "dorp", "--xdp", "eth0")
	s.fails(2, 1, "did you mean detach", "detch", "drop")
	s.fails(1, 2, "at rejected.c:11: return data[20] == 6", "load", filterObjects+"rejected.o")
	s.fails(1, 0, "processed 2 insns", "load", "-v", filterObjects+"rejected.o")
	s.fails(1, 1, "nothere.o: no such file", "load", "nothere.o")
	if out := s.must("attach", "--help"); !strings.Contains(out, "Usage:") || !strings.Contains(out, "millrace filter attach drop --xdp eth0") {
		t.Errorf("--help: %s", out)
	}
	s.held()
}

// held has another program on the hook, which is named, and stays.
func (s *filterSite) held() {
	s.t.Helper()
	if refused, err := xdp.Extensions(); err != nil || refused == nil {
		s.must("attach", "count/count_xdp", "--xdp", "eth0", "--priority", "1")
		s.must("attach", "drop", "--xdp", "eth0")
		return
	}
	s.must("attach", "drop", "--xdp", "eth0")
	s.fails(1, 1, `"drop_all"`, "attach", "count/count_xdp", "--xdp", "eth0")
	var l filterList
	s.as(&l, "list", "eth0")
	if len(l.Hooks) != 1 || l.Hooks[0].Chain[0].Name != "drop_all" {
		s.t.Errorf("after the refusal: %+v", l.Hooks)
	}
}
