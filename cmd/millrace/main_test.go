package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/wire"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// asProgram in the environment makes the test binary millrace itself, for tests that need a process.
const asProgram = "MILLRACE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if name := os.Getenv(asStandIn); name != "" {
		os.Exit(standIn(name, os.Args[1:]))
	}
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// program returns a command that runs millrace in a process of its own.
func program(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd
}

// run runs millrace within the test and returns the exit code and what it printed.
func run(args ...string) (code int, out, err string) { return runWith("", args...) }

// runWith is run with a standard input.
func runWith(in string, args ...string) (code int, out, err string) {
	var o, e bytes.Buffer
	code = execute(context.Background(), args, &console{in: strings.NewReader(in), out: &o, err: &e})
	return code, o.String(), e.String()
}

// fullDisk takes some bytes and no more.
type fullDisk struct{ room int }

func (f *fullDisk) Write(p []byte) (int, error) {
	if f.room -= len(p); f.room < 0 {
		return 0, syscall.ENOSPC
	}
	return len(p), nil
}

// TestUnwrittenResultIsAFailure, also when only its end is missing.
func TestUnwrittenResultIsAFailure(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"replay", sample(t)}, {"bench", "kern", "--list"}, {"bench", "kern", "--list", "--json"}} {
		for _, room := range []int{0, 10, 60} {
			var errs bytes.Buffer
			code := execute(context.Background(), args, &console{out: &fullDisk{room}, err: &errs})
			if code != exitFailure || strings.Count(errs.String(), "no space left on device") != 1 {
				t.Errorf("%v, room for %d bytes: code %d, %q", args, room, code, errs.String())
			}
		}
	}
}

// decode reads a JSON document into v. It fails on fields that v lacks, and without a schema version.
func decode(t *testing.T, text string, v any) {
	t.Helper()
	head, rest, ok := strings.Cut(text, `"schema"`)
	if !ok || strings.TrimSpace(head) != "{" {
		t.Fatalf("no schema version in:\n%s", text)
	}
	if rest = strings.TrimSpace(strings.TrimPrefix(rest, ":")); !strings.HasPrefix(rest, "1") && !strings.HasPrefix(rest, "2") {
		t.Fatalf("schema %.10s", rest)
	}
	text = "{" + strings.TrimPrefix(rest[1:], ",")
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
}

// golden compares got with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got), rewrite with -update:\n%s", path, diff)
	}
}

// segment is a packet to be made.
type segment struct {
	src, dst     string
	proto        uint8
	sport, dport uint16
	size         int // of the transport payload
}

// frame makes the Ethernet frame of an IPv4 packet, with right checksums.
func (s segment) frame() []byte {
	header := map[uint8]int{wire.ProtoTCP: 20, wire.ProtoUDP: 8}[s.proto]
	b := make([]byte, 14+20+header+s.size)
	binary.BigEndian.PutUint16(b[12:], wire.EtherTypeIPv4)
	ip := b[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, s.proto
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	src, dst := netip.MustParseAddr(s.src).As4(), netip.MustParseAddr(s.dst).As4()
	copy(ip[12:], src[:])
	copy(ip[16:], dst[:])
	binary.BigEndian.PutUint16(ip[10:], wire.Fold(wire.Sum(ip[:20], 0)))
	l4 := ip[20:]
	binary.BigEndian.PutUint16(l4, s.sport)
	binary.BigEndian.PutUint16(l4[2:], s.dport)
	sum := 6
	if s.proto == wire.ProtoTCP {
		l4[12], sum = 5<<4, 16
	} else {
		binary.BigEndian.PutUint16(l4[4:], uint16(len(l4)))
	}
	pseudo := wire.PseudoHeader4(src, dst, s.proto, uint32(len(l4)))
	binary.BigEndian.PutUint16(l4[sum:], wire.Fold(wire.Sum(l4, pseudo)))
	return b
}

// record writes frames to a capture, a millisecond apart, and returns its path.
func record(t *testing.T, name string, frames ...[]byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	w, err := capture.Create(path, capture.WriterConfig{Interfaces: []capture.Interface{{LinkType: capture.LinkTypeEthernet}}})
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range frames {
		if err := w.Write(&capture.Record{Data: f, Len: len(f), Time: int64(i) * 1e6}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}
