package ebpf

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/filter/expr"
	"github.com/millrace/millrace/internal/testkit/testpcaps"
)

// Codes that no default of the kernel's is.
const (
	xdpMatch = 77
	xdpOther = 11
)

// loadExpression hands the XDP form of a filter to the kernel's verifier.
func loadExpression(t *testing.T, f *expr.Filter) *ebpf.Program {
	t.Helper()
	code, err := f.XDP(xdpMatch, xdpOther)
	if err != nil {
		t.Fatalf("%q: %v", f, err)
	}
	var order binary.ByteOrder = binary.LittleEndian // the library does not know binary.NativeEndian
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		order = binary.BigEndian
	}
	insns, err := asm.AppendInstructions(nil, bytes.NewReader(expr.Marshal(code)), order, "linux")
	if err != nil {
		t.Fatalf("%q: %v", f, err)
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, Instructions: insns, License: "GPL"})
	if errors.Is(err, unix.EPERM) && os.Getenv("MILLRACE_MUST_NETNS") == "" {
		t.Skip("loading programs into the kernel is not permitted here")
	}
	if err != nil {
		t.Fatalf("%q: the verifier refuses it: %+v\n%s", f, err, expr.DisassembleXDP(code))
	}
	return prog
}

// runsAs runs a program on frames and compares with the match tree. It returns the number of matches.
func runsAs(t *testing.T, f *expr.Filter, prog *ebpf.Program, frames [][]byte) (matches int) {
	t.Helper()
	for i, b := range frames {
		got, err := prog.Run(&ebpf.RunOptions{Data: b})
		if err != nil {
			t.Fatal(err)
		}
		want := uint32(xdpOther)
		if f.Match(b, len(b)) {
			want = xdpMatch
			matches++
		}
		if got != want {
			t.Errorf("%q on frame %d: XDP returns %d, the tree wants %d\n%s%x", f, i, got, want, f.Tree(), b)
			break
		}
	}
	return matches
}

// ethernetFrames reads the different Ethernet frames of captures that the kernel's test run takes: at
// least an Ethernet header, at most what fits in a page.
func ethernetFrames(t *testing.T, files []string, limit int) (frames [][]byte) {
	t.Helper()
	seen := map[string]bool{}
	for _, file := range files {
		r, err := capture.Open(file)
		if err != nil {
			continue
		}
		for {
			rec, err := r.Next()
			if err != nil || len(frames) == limit {
				break
			}
			b := rec.Data[:min(len(rec.Data), 1600)]
			head := string(b[:min(len(b), 60)])
			if rec.LinkType == capture.LinkTypeEthernet && len(b) >= 14 && !seen[head] {
				seen[head] = true
				frames = append(frames, slices.Clone(b))
			}
		}
		r.Close()
	}
	return frames
}

func compileAll(t *testing.T, texts []string) (filters []*expr.Filter) {
	t.Helper()
	for _, text := range texts {
		if f, err := expr.Compile(text, expr.LinkEthernet, expr.Options{}); err == nil {
			filters = append(filters, f)
		}
	}
	return filters
}

// TestExpressionsInXDP loads expressions that use every form of load, and runs them.
func TestExpressionsInXDP(t *testing.T) {
	filters := compileAll(t, []string{
		"", "tcp port 80", "not (udp or arp)", "host 10.0.0.1 or ip6 host 2001:db8::1", "vlan and ip", "ip[0] & 0xf > 5",
		"tcp[tcpflags] & tcp-syn != 0", "len > 100", "len / ip[8] > 3", "1 << ip[8] = 0", "ip[ip[8]:2] % tcp[0] = 1",
		"vxlan and tcp", "geneve 5", "ip protochain 6", "ip6 protochain 17", "ether[70000] = 1", "ether[0xffffffff:4] = 1 or ip",
		"ether[len - 1] != 0", "-ip[8] > 100", "mpls and ip", "pppoes and ip6", "ether multicast", "portrange 1-1000",
	})
	frames := ethernetFrames(t, testpcaps.Files(t), 200)
	if len(filters) != 23 || len(frames) < 50 {
		t.Fatalf("%d expressions, %d frames", len(filters), len(frames))
	}
	matches := 0
	for _, f := range filters {
		prog := loadExpression(t, f)
		matches += runsAs(t, f, prog, frames)
		prog.Close()
	}
	if matches == 0 {
		t.Error("nothing matched")
	}
}

// TestCorpusInXDP loads all expressions of libpcap's tests for Ethernet and of our table, and runs them on
// the captures of libpcap's tests and of MILLRACE_PCAPS.
func TestCorpusInXDP(t *testing.T) {
	name := os.Getenv("MILLRACE_PCAP_CORPUS")
	if name == "" {
		t.Skip("set MILLRACE_PCAP_CORPUS to the list that \"make pcap-oracle\" writes")
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var corpus struct {
		Accept []struct {
			DLT     string
			Aliases []string
		}
	}
	if err := json.Unmarshal(b, &corpus); err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, block := range corpus.Accept {
		if block.DLT == "EN10MB" {
			texts = append(texts, block.Aliases...)
		}
	}
	table, err := os.ReadFile("../expr/testdata/verdicts.txt")
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(table)); lines.Scan(); {
		if f := strings.Split(lines.Text(), "\t"); f[0] == "EN10MB" {
			texts = append(texts, f[2])
		}
	}
	var files []string
	for _, dir := range []string{os.Getenv("MILLRACE_PCAP_FILES"), os.Getenv("MILLRACE_PCAPS")} {
		m, _ := filepath.Glob(filepath.Join(dir, "*.pcap*"))
		files = append(files, m...)
	}
	frames := ethernetFrames(t, files, 1000)
	filters := compileAll(t, texts)
	matches := 0
	for _, f := range filters {
		prog := loadExpression(t, f)
		matches += runsAs(t, f, prog, frames)
		prog.Close()
	}
	t.Logf("%d programs, %d frames each, %d matches", len(filters), len(frames), matches)
}
