package replay

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/filter"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd/pcap"
	"github.com/millrace/millrace/ring"
)

// TestDamagedFileCountsUpToItsDamage also shows that the others are replayed as if
// it were not there, streamed and repeated.
func TestDamagedFileCountsUpToItsDamage(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	write(t, file("good.pcap"), 0, zoo()...)
	whole, err := os.ReadFile(file("good.pcap"))
	if err != nil {
		t.Fatal(err)
	}
	corrupt := append([]byte(nil), whole...)
	corrupt[24+11] = 0xff // the captured length of the first record
	for name, b := range map[string][]byte{
		"short.pcap":   whole[:len(whole)-1],
		"corrupt.pcap": corrupt,
		"text.pcap":    []byte("no capture at all"),
		"empty.pcap":   {},
	} {
		if err := os.WriteFile(file(name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := []struct {
		name    string
		err     error
		packets uint64
	}{
		{"good.pcap", nil, 27},
		{"short.pcap", capture.ErrTruncated, 26},
		{"corrupt.pcap", capture.ErrCorrupt, 0},
		{"text.pcap", capture.ErrFormat, 0},
		{"empty.pcap", capture.ErrTruncated, 0},
		{"absent.pcap", fs.ErrNotExist, 0},
		{"good.pcap", nil, 27},
	}
	cfg := Config{}
	for _, w := range want {
		cfg.Files = append(cfg.Files, file(w.name))
	}
	for _, laps := range []int{1, 3} {
		cfg.Laps = laps
		rep, err := Run(context.Background(), cfg)
		if err != nil || len(rep.Files) != len(want) || balance(rep.Total) || rep.Total.Flows != 8 {
			t.Fatalf("%d laps: %d files, %d flows, %v", laps, len(rep.Files), rep.Total.Flows, err)
		}
		for i, w := range want {
			f := &rep.Files[i]
			packets := w.packets * uint64(laps)
			if w.err != nil { // damage ends a file in its first lap
				packets = w.packets
			}
			if !errors.Is(f.Err, w.err) || (f.Error == "") != (w.err == nil) || f.Packets != packets {
				t.Errorf("%d laps: %s: %d packets, %v; want %d, %v", laps, w.name, f.Packets, f.Err, packets, w.err)
			}
		}
		if last := &rep.Files[len(want)-1]; last.Flows != 8 {
			t.Errorf("%d laps: a file of known flows has %d, want 8", laps, last.Flows)
		}
	}
	if v, err := Verify(context.Background(), Config{Files: cfg.Files}); v.Packets != 27+26+27 || v.Count != 0 ||
		!errors.Is(err, capture.ErrCorrupt) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("verified %d packets, %d mismatches: %v", v.Packets, v.Count, err)
	}
}

func TestRecordsWithoutPacketsAreCounted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mixed.pcapng")
	w, err := capture.Create(path, capture.WriterConfig{Interfaces: []capture.Interface{
		{LinkType: capture.LinkTypeEthernet}, {LinkType: capture.LinkTypeUSBLinux}, {LinkType: capture.LinkTypeRaw},
	}})
	if err != nil {
		t.Fatal(err)
	}
	frame := zoo()[0]
	for _, r := range []capture.Record{
		{Data: frame, Len: len(frame)},
		{Data: frame, Len: len(frame) + 1}, // cut by who captured
		{Data: nil, Interface: 0},
		{Data: frame, Interface: 1},
		{Data: frame, Interface: 1},
		{Data: frame, Interface: 1},
		{Data: frame[14:], Interface: 2},      // IPv4 without Ethernet
		{Data: []byte{0x30, 0}, Interface: 2}, // neither IPv4 nor IPv6
		{Data: make([]byte, 5), Interface: 2}, // neither
	} {
		if err := w.Write(&r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if v, err := Verify(context.Background(), Config{Files: []string{path}}); err != nil || v.Packets != 3 || v.Skipped != 6 || v.Count != 0 {
		t.Errorf("verified %d and skipped %d, %d mismatches: %v", v.Packets, v.Skipped, v.Count, err)
	}
	for _, laps := range []int{1, 2} {
		rep, err := Run(context.Background(), Config{Files: []string{path}, Laps: laps})
		if err != nil {
			t.Fatal(err)
		}
		want := Records{Read: 9, Cut: 1, Unsupported: 3, NotIP: 2, Empty: 1}
		if diff := cmp.Diff(want, rep.Files[0].Records); diff != "" {
			t.Errorf("%d laps (-want +got):\n%s", laps, diff)
		}
		if rep.Total.Packets != 3*uint64(laps) || rep.Total.Flows != 1 {
			t.Errorf("%d laps: %d packets of %d flows, want 3 a lap, of one", laps, rep.Total.Packets, rep.Total.Flows)
		}
	}
}

// TestCtrlCEndsWithTheSummary ends the context as a signal does, at the first progress.
func TestCtrlCEndsWithTheSummary(t *testing.T) {
	path := numbered(t, 1000)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	rep, err := Run(ctx, Config{
		Files: []string{path, path}, Laps: 1 << 40,
		OnProgress: func(Progress) { cancel() },
	})
	if err != nil || !rep.Stopped || len(rep.Files) != 1 || rep.Files[0].Err != nil {
		t.Fatalf("stopped %v, %d files, %v", rep.Stopped, len(rep.Files), err)
	}
	if p := rep.Total; p.Packets == 0 || balance(p) || p.Seconds == 0 || p.Mpps == 0 || p.NsPacket < p.EngineNs {
		t.Errorf("%d packets in %v s, %v Mpps, %v of %v ns", p.Packets, p.Seconds, p.Mpps, p.EngineNs, p.NsPacket)
	}
	rep, err = Run(ctx, Config{Files: []string{path}})
	if err != nil || !rep.Stopped || len(rep.Files) != 0 {
		t.Errorf("stopped before it began: %d files, stopped %v, %v", len(rep.Files), rep.Stopped, err)
	}
}

func TestProgressEndsWithEachFilesTotal(t *testing.T) {
	for _, laps := range []int{1, 2} {
		var last [2]Progress
		_, err := Run(context.Background(), Config{
			Files: []string{numbered(t, 1000), numbered(t, 70)}, Laps: laps,
			OnProgress: func(p Progress) { last[p.File] = p },
		})
		if err != nil {
			t.Fatal(err)
		}
		done := 1.0
		if laps == 1 {
			done = -1 // how many packets a stream has is known at its end only
		}
		want := [2]Progress{
			{0, uint64(laps) * 1000, uint64(laps) * 1000 * 16, laps, done},
			{1, uint64(laps) * 70, uint64(laps) * 70 * 16, laps, done},
		}
		if last != want {
			t.Errorf("%d laps: the last calls %+v, want %+v", laps, last, want)
		}
	}
}

func TestLimitCountsOverAllFilesAndLaps(t *testing.T) {
	path := numbered(t, 1000)
	for _, tc := range []struct {
		laps  int
		limit uint64
		files []uint64
	}{
		{1, 1500, []uint64{1000, 500}},
		{1, 1000, []uint64{1000}},
		{1, 5000, []uint64{1000, 1000, 1000}},
		{3, 3001, []uint64{3000, 1}},
	} {
		rep, err := Run(context.Background(), Config{Files: []string{path, path, path}, Laps: tc.laps, Limit: tc.limit})
		if err != nil {
			t.Fatal(err)
		}
		var got []uint64
		for i := range rep.Files {
			got = append(got, rep.Files[i].Packets)
		}
		if diff := cmp.Diff(tc.files, got); diff != "" {
			t.Errorf("limit %d (-want +got):\n%s", tc.limit, diff)
		}
	}
}

func TestARateIsKept(t *testing.T) {
	rep, err := Run(context.Background(), Config{Files: []string{numbered(t, 300)}, Rate: pcap.Rate{Packets: 3000}})
	if err != nil || rep.Total.Packets != 300 || rep.Total.Seconds < 0.09 {
		t.Errorf("%d packets in %v s at 3000 a second: %v", rep.Total.Packets, rep.Total.Seconds, err)
	}
}

// TestPacketOfSeveralFramesIsOne replays packets that are longer than a frame.
func TestPacketOfSeveralFramesIsOne(t *testing.T) {
	long := append(append(make([]byte, 12), 8, 0, 0x15), make([]byte, 5000)...) // IPv4, version 1
	other := append(append(make([]byte, 12), 0x88, 0xb5), make([]byte, 5000)...)
	path := record(t, [][]byte{long, other, long, other[:100], long[:100]})
	for _, laps := range []uint64{1, 4} {
		rep, err := Run(context.Background(), Config{Files: []string{path}, Laps: int(laps)})
		if err != nil || rep.Files[0].Err != nil {
			t.Fatal(err, rep.Files[0].Err)
		}
		p := rep.Total
		if p.Packets != 5*laps || p.Bytes != 15244*laps || p.Dropped["malformed"] != 3*laps || p.Sizes["2048-"] != 3*laps || balance(p) {
			t.Errorf("%d laps: %d packets, %d bytes, dropped %v, sizes %v", laps, p.Packets, p.Bytes, p.Dropped, p.Sizes)
		}
	}
}

func TestCompressedFileIsRepeatedLikeAnyOther(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "n.pcap"), 0, slices.Repeat([][]byte{make([]byte, 1400)}, 8000)...)
	plain, err := os.ReadFile(filepath.Join(dir, "n.pcap"))
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(plain); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "n.pcap.gz")
	if err := os.WriteFile(path, packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	rep, err := Run(context.Background(), Config{Files: []string{path}, Laps: 2})
	if err != nil || rep.Files[0].Err != nil || rep.Total.Packets != 16_000 || rep.Files[0].Mode != "preload" {
		t.Errorf("%d packets by %s: %v, %v", rep.Total.Packets, rep.Files[0].Mode, err, rep.Files[0].Err)
	}
}

// bent is an engine that is wrong about one packet.
type bent struct {
	gpukern.Engine
	bend func(b *packet.Batch)
}

func (e *bent) Poll(done []*packet.Batch) int {
	n := e.Engine.Poll(done)
	for _, b := range done[:n] {
		if len(b.D) > 0 {
			e.bend(b)
		}
	}
	return n
}

func TestVerifyFindsErrorsOfAnotherEngine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.pcap")
	frame := append(make([]byte, 12), 8, 0, 0x45, 0, 0, 31, 0, 0, 0, 0, 64, 17, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2, 0, 9, 0, 9, 0, 11, 0, 0, 'a', 'b', 'c')
	write(t, path, 0, frame, frame)
	patterns, err := filter.ParsePatterns("p", `"abc"`)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		field string
		bend  func(b *packet.Batch)
	}{
		{"", func(*packet.Batch) {}},
		{"next_hop", func(b *packet.Batch) { b.D[1].NextHop = 3 }},
		{"match", func(b *packet.Batch) { b.Matches = b.Matches[:1] }},
		{"match", func(b *packet.Batch) { b.Matches[1].End++ }},
		{"match", func(b *packet.Batch) { b.Matches = append(b.Matches, packet.Match{D: 1, Rule: 1, End: 45}) }},
	} {
		open := func(cfg gpukern.Config, _ *ring.Arena) (gpukern.Engine, error) {
			return &bent{gpukern.NewCPU(cfg), tc.bend}, nil
		}
		v, err := Verify(context.Background(), Config{Files: []string{path}, Patterns: patterns, Engine: open})
		if err != nil {
			t.Fatal(err)
		}
		want := uint64(1)
		if tc.field == "" {
			want = 0
		}
		if v.Count != want || want == 1 && (v.Mismatches[0].Field != tc.field || v.Mismatches[0].Record != 2) {
			t.Errorf("%s: %+v", tc.field, v)
		}
	}
}

func TestEngineThatCannotBeOpenedEndsTheRun(t *testing.T) {
	no := errors.New("no engine")
	open := func(gpukern.Config, *ring.Arena) (gpukern.Engine, error) { return nil, no }
	files := []string{numbered(t, 3), numbered(t, 3)}
	if rep, err := Run(context.Background(), Config{Files: files, Engine: open}); rep != nil || !errors.Is(err, no) {
		t.Errorf("%+v, %v", rep, err)
	}
	if v, err := Verify(context.Background(), Config{Files: files, Engine: open}); v != nil || !errors.Is(err, no) {
		t.Errorf("%+v, %v", v, err)
	}
}

// Files that are streamed have one arena, so that an engine is opened once for all of them; files that are
// repeated have one each.
func TestEngineIsOpenedOnceForStreamedFiles(t *testing.T) {
	for laps, want := range map[int]int{1: 1, 2: 3} {
		opened := 0
		open := func(cfg gpukern.Config, _ *ring.Arena) (gpukern.Engine, error) {
			opened++
			return gpukern.NewCPU(cfg), nil
		}
		files := []string{numbered(t, 3), numbered(t, 4), numbered(t, 5)}
		rep, err := Run(context.Background(), Config{Files: files, Laps: laps, Engine: open})
		if err != nil || opened != want || rep.Total.Packets != uint64(12*laps) || rep.Engine.Name != "cpu" ||
			rep.Engine.Backends[0].Packets != rep.Total.Packets {
			t.Errorf("%d laps: opened %d times, %d packets, %v", laps, opened, rep.Total.Packets, err)
		}
	}
}
