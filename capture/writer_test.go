package capture

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/gopacket/gopacket/pcapgo"
)

var ethernet = []Interface{{LinkType: LinkTypeEthernet}}

// randomRecords are n records that a pcapng with two interfaces can hold.
func randomRecords(rng *rand.Rand, n int) []Record {
	all := make([]Record, n)
	for i := range all {
		r := &all[i]
		r.Data = make([]byte, rng.IntN(300))
		for j := range r.Data {
			r.Data[j] = byte(rng.Uint32())
		}
		r.Len = len(r.Data) + rng.IntN(2)*rng.IntN(2000)
		r.Time = rng.Int64N(math.MaxUint32 * second)
		r.Interface = rng.IntN(2)
		r.LinkType = []LinkType{LinkTypeEthernet, LinkTypeRaw}[r.Interface]
		r.Meta = randomMeta(rng)
	}
	return all
}

func randomMeta(rng *rand.Rand) Meta {
	m := Meta{Has: Fields(rng.IntN(64))}
	if m.Has&HasFlags != 0 {
		m.Flags = PacketFlags(rng.Uint32())
	}
	if m.Has&HasQueue != 0 {
		m.Queue = rng.Uint32()
	}
	if m.Has&HasDrops != 0 {
		m.Drops = rng.Uint64()
	}
	if m.Has&HasPacketID != 0 {
		m.PacketID = rng.Uint64()
	}
	if m.Has&HasVerdict != 0 {
		m.Verdict = []byte(fmt.Sprintf("\x02%08d", rng.IntN(1e8)))
	}
	if m.Has&HasComment != 0 {
		m.Comment = []byte(strings.Repeat("c", 1+rng.IntN(20)))
	}
	return m
}

// write returns the file that the writer makes of records.
func write(t testing.TB, cfg WriterConfig, records []Record) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i := range records {
		if err := w.Write(&records[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if w.Written() != int64(out.Len()) {
		t.Fatalf("%d bytes written, Written says %d", out.Len(), w.Written())
	}
	return out.Bytes()
}

// readRecords returns copies of all records.
func readRecords(t testing.TB, b []byte) []Record {
	t.Helper()
	r, err := NewMemory(b)
	if err != nil {
		t.Fatal(err)
	}
	var all []Record
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, *rec)
	}
}

// sameRecords compares field by field; only a difference costs the time of a diff.
func sameRecords(t *testing.T, want, got []Record) {
	t.Helper()
	if len(want) != len(got) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range want {
		w, g := want[i], got[i]
		same := bytes.Equal(w.Data, g.Data) && bytes.Equal(w.Meta.Comment, g.Meta.Comment) && bytes.Equal(w.Meta.Verdict, g.Meta.Verdict)
		w.Data, w.Meta.Comment, w.Meta.Verdict = g.Data, g.Meta.Comment, g.Meta.Verdict
		if !same || !reflect.DeepEqual(w, g) {
			t.Fatalf("record %d differs:\n%.2000s", i, cmp.Diff(want[i], got[i], cmpopts.EquateEmpty()))
		}
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	two := []Interface{{LinkType: LinkTypeEthernet}, {LinkType: LinkTypeRaw}}
	for range 20 {
		want := randomRecords(rng, 300)
		got := readRecords(t, write(t, WriterConfig{Interfaces: two}, want))
		sameRecords(t, want, got)
		for i := range want {
			want[i].Interface, want[i].Meta, want[i].LinkType = 0, Meta{}, LinkTypeEthernet
		}
		got = readRecords(t, write(t, WriterConfig{Format: FormatPcap, Interfaces: ethernet}, want))
		sameRecords(t, want, got)
	}
}

// detailed is a capture that uses everything that pcapng can say here.
func detailed(t testing.TB) []byte {
	t.Helper()
	cfg := WriterConfig{
		Interfaces: []Interface{
			{LinkType: LinkTypeEthernet, Name: "eth0", Description: "uplink", Filter: "tcp port 80", OS: "Linux", Hardware: "NIC"},
			{LinkType: LinkTypeRaw, Name: "tun7", SnapLen: 40},
		},
		Hardware: "Machine", OS: "Linux 6", Application: "millrace", Comment: "a test",
	}
	var out bytes.Buffer
	w, err := NewWriter(&out, cfg)
	if err != nil {
		t.Fatal(err)
	}
	frame := append(bytes.Repeat([]byte{2, 0, 0, 0, 0, 1}, 2), 0x88, 0xB5)
	frame = append(frame, make([]byte, 46)...)
	ip := append([]byte{0x45, 0, 0, 60}, make([]byte, 56)...)
	xdp := append([]byte{2}, le.AppendUint64(nil, 3)...)
	records := []Record{
		{Data: frame, Time: 1_700_000_000_123_456_789, Meta: Meta{Has: HasFlags | HasQueue | HasComment, Flags: FlagInbound, Queue: 5, Comment: []byte("look here")}},
		{Data: ip, Time: 1_700_000_001_000_000_001, Interface: 1, Meta: Meta{Has: HasFlags | HasVerdict, Flags: FlagOutbound, Verdict: xdp}},
		{Data: frame, Len: 1400, Time: 1_700_000_002_000_000_000, Meta: Meta{Has: HasDrops | HasPacketID, Drops: 12, PacketID: 34}},
	}
	for i := range records {
		if err := w.Write(&records[i]); err != nil {
			t.Fatal(err)
		}
	}
	w.SetCounters(0, Counters{Received: 100, Dropped: 7, Accepted: 93, OSDropped: 1, Delivered: 92})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestPcapngIsReadByPcapgoFieldByField(t *testing.T) {
	r, err := pcapgo.NewNgReader(bytes.NewReader(detailed(t)), pcapgo.NgReaderOptions{WantMixedLinkType: true})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; ; n++ {
		if _, _, err := r.ReadPacketData(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if want := (pcapgo.NgSectionInfo{Hardware: "Machine", OS: "Linux 6", Application: "millrace", Comment: "a test"}); r.SectionInfo() != want || n != 3 {
		t.Errorf("%d packets, %+v", n, r.SectionInfo())
	}
	a, _ := r.Interface(0)
	b, _ := r.Interface(1)
	if a.Name != "eth0" || a.Description != "uplink" || a.Filter != "tcp port 80" || a.OS != "Linux" || a.TimestampResolution != 9 {
		t.Errorf("%+v", a)
	}
	if b.Name != "tun7" || b.SnapLength != 40 || b.LinkType != 101 {
		t.Errorf("%+v", b)
	}
	s := a.Statistics
	if s.PacketsReceived != 100 || s.PacketsDropped != 7 || s.StartTime.UnixNano() != 1_700_000_000_123_456_789 || s.EndTime.Unix() != 1_700_000_002 {
		t.Errorf("%+v", s)
	}
}

// tshark returns the given fields of every packet, one line each.
func tshark(t *testing.T, file []byte, fields ...string) []string {
	t.Helper()
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("tshark is not installed")
	}
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, file, 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"-n", "-r", path, "-T", "fields"}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	out, err := exec.Command("tshark", args...).Output()
	if err != nil {
		t.Fatalf("tshark: %v", err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

func TestPcapngIsReadByTsharkFieldByField(t *testing.T) {
	got := tshark(t, detailed(t), "frame.time_epoch", "frame.len", "frame.cap_len", "frame.interface_name",
		"frame.interface_queue", "frame.packet_flags_direction", "frame.comment", "frame.verdict.ebpf_xdp", "frame.drop_count", "frame.packet_id")
	want := []string{
		"1700000000.123456789\t60\t60\teth0\t5\t0x00000001\tlook here\t\t\t",
		"1700000001.000000001\t60\t40\ttun7\t\t0x00000002\t\t3\t\t",
		"1700000002.000000000\t1400\t60\teth0\t\t\t\t\t12\t34",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestWrittenFilesAreReadByTcpdump(t *testing.T) {
	if _, err := exec.LookPath("tcpdump"); err != nil {
		t.Skip("tcpdump is not installed")
	}
	records := randomRecords(rand.New(rand.NewPCG(3, 4)), 50)
	for i := range records {
		records[i].Interface = 0
		records[i].Time %= math.MaxInt32 * second // tcpdump prints no later ones
		records[i].Data = append(records[i].Data, make([]byte, 20)...)
		records[i].Data[12], records[i].Data[13] = 0x88, 0xB5 // local experimental
	}
	for _, f := range []Format{FormatPcap, FormatPcapng} {
		path := filepath.Join(t.TempDir(), "file")
		os.WriteFile(path, write(t, WriterConfig{Format: f, Interfaces: ethernet}, records), 0o644)
		out, err := exec.Command("tcpdump", "-nr", path, "-tt", "-xx", "--nano").Output()
		if err != nil {
			t.Fatalf("%v: tcpdump: %v", f, err)
		}
		got := tcpdumpPackets(string(out))
		if len(got) != len(records) {
			t.Fatalf("%v: tcpdump sees %d packets of %d", f, len(got), len(records))
		}
		for i, r := range records {
			want := fmt.Sprintf("%d.%09d %s", r.Time/second, r.Time%second, hex.EncodeToString(r.Data))
			if got[i] != want {
				t.Fatalf("%v: packet %d:\n%s, want\n%s", f, i, got[i], want)
			}
		}
	}
}

// tcpdumpPackets turns what tcpdump -tt -xx prints into a line "time hex" per packet.
func tcpdumpPackets(out string) []string {
	var all []string
	for _, line := range strings.Split(out, "\n") {
		if _, dump, ok := strings.Cut(line, ":  "); ok && strings.HasPrefix(line, "\t0x") {
			all[len(all)-1] += strings.ReplaceAll(dump, " ", "")
		} else if line != "" && line[0] != '\t' {
			all = append(all, strings.Fields(line)[0]+" ")
		}
	}
	return all
}

func TestCreateGoesByTheName(t *testing.T) {
	dir := t.TempDir()
	for name, want := range map[string]Format{"a.pcap": FormatPcap, "a.CAP": FormatPcap, "a.dmp": FormatPcap, "a.pcapng": FormatPcapng, "a": FormatPcapng} {
		path := filepath.Join(dir, name)
		w, err := Create(path, WriterConfig{Interfaces: ethernet})
		if err != nil {
			t.Fatal(err)
		}
		w.Write(&Record{Data: []byte("x")})
		if w.Format() != want || w.Close() != nil {
			t.Errorf("%s: %v", name, w.Format())
		}
		if err := w.Close(); !errors.Is(err, ErrClosed) {
			t.Errorf("second Close: %v", err)
		}
		if err := w.Write(&Record{}); !errors.Is(err, ErrClosed) {
			t.Errorf("Write after Close: %v", err)
		}
		r, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := readAll(r); r.Format() != want || len(got) != 1 || err != nil {
			t.Errorf("%s: %v, %d records, %v", name, r.Format(), len(got), err)
		}
		r.Close()
	}
	if _, err := Create(filepath.Join(dir, "no", "such"), WriterConfig{Interfaces: ethernet}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestWriterRejectsRecordsThatTheFormatCannotHold(t *testing.T) {
	for name, cfg := range map[string]WriterConfig{
		"pcap of two interfaces": {Format: FormatPcap, Interfaces: make([]Interface, 2)},
		"pcap of none":           {Format: FormatPcap},
		"pcapng of none":         {},
		"long name":              {Interfaces: []Interface{{Name: strings.Repeat("n", 1<<16)}}},
		"long comment":           {Interfaces: ethernet, Comment: strings.Repeat("n", 1<<16)},
	} {
		if _, err := NewWriter(io.Discard, cfg); !errors.Is(err, ErrRange) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, f := range []Format{FormatPcap, FormatPcapng} {
		var out bytes.Buffer
		w, _ := NewWriter(&out, WriterConfig{Format: f, Interfaces: ethernet})
		bad := []Record{{Time: -1}, {Interface: 1}, {Interface: -1}, {Len: 1 << 32}}
		if f == FormatPcap {
			bad = append(bad, Record{Time: (math.MaxUint32 + 1) * second})
		} else {
			bad = append(bad, Record{Meta: Meta{Has: HasComment, Comment: make([]byte, 1<<16)}})
		}
		for i := range bad {
			if err := w.Write(&bad[i]); !errors.Is(err, ErrRange) {
				t.Errorf("%v: record %d: %v", f, i, err)
			}
		}
		if err := w.SetCounters(1, Counters{}); !errors.Is(err, ErrRange) {
			t.Error(err)
		}
		w.Write(&Record{Data: []byte("good")})
		w.Close()
		if got, err := both(t, out.Bytes()); len(got) != 1 || err != nil {
			t.Errorf("%v: a refused record disturbs the file: %d, %v", f, len(got), err)
		}
	}
}

func TestSetCountersLeavesTheCallersConfigAlone(t *testing.T) {
	for _, f := range []Format{FormatPcap, FormatPcapng} {
		mine := []Interface{{LinkType: LinkTypeEthernet}}
		w, _ := NewWriter(io.Discard, WriterConfig{Format: f, Interfaces: mine})
		if err := w.SetCounters(0, Counters{Received: 1}); err != nil || mine[0].Counters != nil {
			t.Errorf("%v: %v, %+v", f, err, mine[0])
		}
	}
}

func TestWriterCutsToTheSnapLength(t *testing.T) {
	for _, f := range []Format{FormatPcap, FormatPcapng} {
		file := write(t, WriterConfig{Format: f, Interfaces: ethernet, SnapLen: 4}, []Record{{Data: []byte("0123456789")}, {Data: make([]byte, 2), Len: 9}})
		got, _ := mustRead(t, file)
		if got[0].Data != "0123" || got[0].Len != 10 || len(got[1].Data) != 2 || got[1].Len != 9 {
			t.Errorf("%v: %+v", f, got)
		}
	}
}

// shortDisk takes so many bytes and no more.
type shortDisk struct{ left int }

func (d *shortDisk) Write(p []byte) (int, error) {
	n := min(len(p), d.left)
	d.left -= n
	if n < len(p) {
		return n, io.ErrShortWrite
	}
	return n, nil
}

func TestAFailedWriteIsFinal(t *testing.T) {
	w, _ := NewWriter(&shortDisk{1000}, WriterConfig{Interfaces: ethernet})
	rec := Record{Data: make([]byte, 1000)}
	var err error
	for range 1000 {
		if err = w.Write(&rec); err != nil {
			break
		}
	}
	if !errors.Is(err, io.ErrShortWrite) || w.Write(&rec) == nil || w.Flush() == nil || w.Close() == nil {
		t.Error(err)
	}
}

func TestWritingAllocatesNothingPerRecord(t *testing.T) {
	rec := Record{Data: make([]byte, 700), Meta: Meta{Has: HasFlags | HasQueue | HasComment, Comment: []byte("why")}}
	for _, f := range []Format{FormatPcap, FormatPcapng} {
		w, _ := NewWriter(io.Discard, WriterConfig{Format: f, Interfaces: ethernet})
		if n := testing.AllocsPerRun(2000, func() { w.Write(&rec) }); n != 0 {
			t.Errorf("%v: %v allocations per record", f, n)
		}
	}
}
