package replay

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/internal/testkit/testpcaps"
)

// requireTshark skips without tshark, which the test target installs.
func requireTshark(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("no tshark: run `make deps`")
	}
}

// talk is what a conversation is by tshark's fields, by its ends in the order of their text.
type talk struct {
	Packets, Bytes [2]int // from the first end, from the second
	Start, End     string // s since the Unix epoch
}

// tsharkTalks adds up, by ends, what tshark prints of each TCP and UDP packet.
func tsharkTalks(t *testing.T, path string) map[string]talk {
	t.Helper()
	args := []string{"-r", path, "-n", "-T", "fields", "-E", "occurrence=f", "-Y", "(tcp or udp) and not icmp and not icmpv6"}
	for _, field := range []string{
		"frame.time_epoch", "frame.cap_len", "ip.proto", "ipv6.nxt", "ip.src", "ipv6.src", "ip.dst", "ipv6.dst",
		"tcp.srcport", "udp.srcport", "tcp.dstport", "udp.dstport",
	} {
		args = append(args, "-e", field)
	}
	out, err := exec.Command("tshark", args...).Output()
	if err != nil {
		t.Fatalf("tshark: %v", err)
	}
	found := map[string]talk{}
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		size, err := strconv.Atoi(f[1])
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		proto := "tcp"
		if f[8] == "" {
			proto = "udp"
		}
		a, b := f[4]+f[5]+" "+f[8]+f[9], f[6]+f[7]+" "+f[10]+f[11]
		way := 0
		if a > b {
			a, b, way = b, a, 1
		}
		one, known := found[proto+" "+a+" "+b]
		if one.End = f[0]; !known {
			one.Start = f[0]
		}
		one.Packets[way]++
		one.Bytes[way] += size
		found[proto+" "+a+" "+b] = one
	}
	return found
}

// ourTalks returns conversations in that form.
func ourTalks(list []Conversation) map[string]talk {
	found := map[string]talk{}
	stamp := func(at time.Time) string { return fmt.Sprintf("%d.%09d", at.Unix(), at.Nanosecond()) }
	for _, c := range list {
		if c.Protocol != "tcp" && c.Protocol != "udp" {
			continue
		}
		a, b := end(c.A), end(c.B)
		one := talk{
			[2]int{int(c.PacketsAB), int(c.PacketsBA)},
			[2]int{int(c.BytesAB), int(c.BytesBA)},
			stamp(c.Start), stamp(c.Start.Add(time.Duration(math.Round(c.Seconds * 1e9)))),
		}
		if a > b {
			a, b = b, a
			one.Packets[0], one.Packets[1] = one.Packets[1], one.Packets[0]
			one.Bytes[0], one.Bytes[1] = one.Bytes[1], one.Bytes[0]
		}
		found[c.Protocol+" "+a+" "+b] = one
	}
	return found
}

// end is an end in that form.
func end(a netip.AddrPort) string { return fmt.Sprintf("%s %d", a.Addr(), a.Port()) }

func TestConversationsAreThoseOfTshark(t *testing.T) {
	requireTshark(t)
	for _, name := range []string{"http.pcap", "tls.pcap", "udp.pcap", "vlan.pcap", "dns.pcap", "bulk-loss.pcap"} {
		path := testpcaps.File(t, name)
		rep, err := Run(context.Background(), Config{Files: []string{path}, Conversations: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		want := tsharkTalks(t, path)
		if d := cmp.Diff(want, ourTalks(rep.Conversations.List)); d != "" || len(want) == 0 {
			t.Errorf("%s: tshark -, replay +:\n%s", name, d)
		}
	}
}

func TestConversationsAddUpToThePackets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "zoo.pcap")
	write(t, path, 0, zoo()...)
	for _, tc := range []struct{ laps, limit int }{{1, 100}, {3, 100}, {1, 2}} {
		rep, err := Run(context.Background(), Config{Files: []string{path}, Laps: tc.laps, Conversations: tc.limit})
		if err != nil {
			t.Fatal(err)
		}
		c := rep.Conversations
		sum, before := c.Others, uint64(1<<62)
		for _, one := range c.List {
			sum += one.PacketsAB + one.PacketsBA
			if bytes := one.BytesAB + one.BytesBA; bytes > before {
				t.Errorf("%d bytes after %d", bytes, before)
			} else {
				before = bytes
			}
		}
		if sum != rep.Total.Packets || c.Total != int(rep.Total.Flows) || len(c.List) != min(tc.limit, c.Total) {
			t.Errorf("%+v: %d packets of %d, %d of %d conversations", tc, sum, rep.Total.Packets, len(c.List), c.Total)
		}
	}
	// Beyond the bound of the table nothing is listed, and nothing is lost.
	rep, err := Run(context.Background(), Config{Files: []string{path}, Flows: 1, Conversations: 10})
	if err != nil || len(rep.Conversations.List) != 1 || rep.FlowsUnknown == 0 {
		t.Fatalf("%+v, %d unknown, %v", rep.Conversations, rep.FlowsUnknown, err)
	}
	if one := rep.Conversations.List[0]; one.PacketsAB+one.PacketsBA+rep.Conversations.Others != rep.Total.Packets {
		t.Errorf("%+v of %d packets", rep.Conversations, rep.Total.Packets)
	}
}

// records reads a capture as time, length on the wire and bytes.
func records(t *testing.T, path string) (all []string) {
	t.Helper()
	r, err := capture.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%d %d %x", rec.Time, rec.Len, rec.Data))
	}
}

// shortened copies a capture with a snap length.
func shortened(t *testing.T, path string, snap int) string {
	t.Helper()
	r, err := capture.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	short := filepath.Join(t.TempDir(), "short.pcap")
	w, err := capture.Create(short, capture.WriterConfig{SnapLen: snap, Interfaces: []capture.Interface{{LinkType: capture.LinkTypeEthernet}}})
	if err != nil {
		t.Fatal(err)
	}
	for rec, err := r.Next(); err == nil; rec, err = r.Next() {
		if err := w.Write(rec); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return short
}

// TestWrittenPacketsAreThoseOfTshark holds --write against tshark's display filter: the same packets, times and lengths.
func TestWrittenPacketsAreThoseOfTshark(t *testing.T) {
	requireTshark(t)
	dir := t.TempDir()
	for _, tc := range []struct{ file, drop, display string }{
		{"http.pcap", "drop tcp from any port 443\ndrop tcp to any port 443", "!(tcp.port == 443)"},
		{"http.pcap cut", "drop tcp from any port 443\ndrop tcp to any port 443", "!(tcp.port == 443)"},
		{"nanoseconds.pcap", "drop icmp", "!icmp"},
		{"jumbo.pcap", "drop to port 9", "!(tcp.dstport == 9) && !(udp.dstport == 9)"},
	} {
		rules, err := filter.Parse("rules", tc.drop)
		if err != nil {
			t.Fatal(err)
		}
		path := testpcaps.File(t, strings.TrimSuffix(tc.file, " cut"))
		if strings.HasSuffix(tc.file, " cut") {
			path = shortened(t, path, 100)
		}
		ours, theirs := filepath.Join(dir, "ours-"+tc.file+".pcapng"), filepath.Join(dir, "theirs-"+tc.file+".pcapng")
		rep, err := Run(context.Background(), Config{Files: []string{path}, Rules: rules, Save: ours})
		if err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("tshark", "-r", path, "-n", "-Y", tc.display, "-w", theirs).CombinedOutput(); err != nil {
			t.Fatalf("tshark: %v: %s", err, out)
		}
		got, want := records(t, ours), records(t, theirs)
		if d := cmp.Diff(want, got); d != "" || len(got) == 0 {
			t.Errorf("%s: tshark -, replay +:\n%s", tc.file, d)
		}
		if rep.Saved.Packets != uint64(len(got)) || rep.Saved.Packets != rep.Total.Passed || rep.Saved.Path != ours {
			t.Errorf("%s: %+v of %d records, %d passed", tc.file, rep.Saved, len(got), rep.Total.Passed)
		}
	}
}

func TestOnlyTheLimitIsWritten(t *testing.T) {
	path := numbered(t, 1000)
	out := filepath.Join(t.TempDir(), "out.pcap")
	rep, err := Run(context.Background(), Config{Files: []string{path, path}, Limit: 1500, Save: out})
	if err != nil || rep.Saved.Packets != 1500 {
		t.Fatalf("%+v: %v", rep.Saved, err)
	}
	want := records(t, path)
	want = append(want, want[:500]...)
	if d := cmp.Diff(want, records(t, out)); d != "" {
		t.Error(d)
	}
}

func TestAFileThatIsReplayedIsNotOverwritten(t *testing.T) {
	path := numbered(t, 3)
	link := filepath.Join(t.TempDir(), "link.pcap")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	before := records(t, path)
	for _, save := range []string{path, link} {
		if _, err := Run(context.Background(), Config{Files: []string{path}, Save: save}); err == nil || !strings.Contains(err.Error(), "one of the files to replay") {
			t.Errorf("%s: %v", save, err)
		}
	}
	if d := cmp.Diff(before, records(t, path)); d != "" {
		t.Error(d)
	}
	if _, err := Run(context.Background(), Config{Files: []string{path}, Save: path + ".out", Laps: 2}); err == nil {
		t.Error("several laps are written")
	}
}

// TestAFullDiskIsReported writes to a device that has no room.
func TestAFullDiskIsReported(t *testing.T) {
	_, err := Run(context.Background(), Config{Files: []string{numbered(t, 1000), numbered(t, 9)}, Save: "/dev/full"})
	if err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("%v", err)
	}
}
