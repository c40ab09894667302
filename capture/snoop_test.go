package capture

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/internal/testkit/testpcaps"
)

// snoopFile makes a file of a datalink type with two packets, the first with pad octets behind it and cut.
func snoopFile(link uint32, pad, dropped int) []byte {
	be := binary.BigEndian
	b := be.AppendUint32(be.AppendUint32([]byte("snoop\x00\x00\x00"), 2), link)
	for i, data := range []string{"first", "second packet"} {
		more, gone := 0, 3
		if i == 0 {
			more, gone = 100, 3-dropped
		}
		for _, v := range []int{len(data) + more, len(data), 24 + len(data) + pad, gone, 7 + i, 5} {
			b = be.AppendUint32(b, uint32(v))
		}
		b = append(append(b, data...), make([]byte, pad)...)
	}
	return b
}

func TestSnoopFilesAreRead(t *testing.T) {
	r, err := NewMemory(snoopFile(4, 3, 2))
	if err != nil {
		t.Fatal(err)
	}
	first, err := r.Next()
	if err != nil || first.Meta.Drops != 1 || !first.Truncated() {
		t.Fatalf("%+v, %v", first, err)
	}
	second, err := r.Next()
	if err != nil || second.Meta.Drops != 2 || second.Time != 8_000_005_000 || string(second.Data) != "second packet" {
		t.Errorf("%+v, %v", second, err)
	}
	if r.Format().String() != "snoop" || r.Interfaces()[0].LinkType != LinkTypeEthernet {
		t.Errorf("%v, %+v", r.Format(), r.Interfaces())
	}
	want := []plain{
		{7_000_005_000, 105, 10, "first"},
		{8_000_005_000, 13, 10, "second packet"},
	}
	got, err := both(t, snoopFile(8, 0, 0))
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("FDDI: %v\n%s", err, d)
	}
}

func TestDamagedSnoopFilesAreNamed(t *testing.T) {
	set := func(at int, v uint32) []byte {
		b := snoopFile(4, 3, 0)
		binary.BigEndian.PutUint32(b[at:], v)
		return b
	}
	for name, c := range map[string]struct {
		file []byte
		want error
	}{
		"header alone, cut":     {snoopFile(4, 0, 0)[:15], ErrTruncated},
		"record header cut":     {snoopFile(4, 0, 0)[:39], ErrTruncated},
		"packet cut":            {snoopFile(4, 0, 0)[:44], ErrTruncated},
		"of another datalink":   {snoopFile(1, 0, 0), ErrLinkType},
		"captured too much":     {set(20, MaxRecord+1), ErrCorrupt},
		"record within packet":  {set(24, 24+4), ErrCorrupt},
		"record without an end": {set(24, maxBlock+1), ErrCorrupt},
		"of another version":    {set(8, 1), ErrFormat},
	} {
		if _, err := both(t, c.file); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if got, err := both(t, snoopFile(4, 3, 0)[:16+2*24+18+3]); err != nil || len(got) != 2 {
		t.Errorf("without the last padding: %d records, %v", len(got), err)
	}
}

func TestSnoopFilesReadLikeTheirOriginals(t *testing.T) {
	path := testpcaps.File(t, "vlan.pcap")
	out := filepath.Join(t.TempDir(), "x.snoop")
	if _, err := exec.LookPath("editcap"); err != nil {
		t.Skip("editcap writes the file: ", err)
	}
	if text, err := exec.Command("editcap", "-F", "snoop", path, out).CombinedOutput(); err != nil {
		t.Fatalf("editcap: %v\n%s", err, text)
	}
	var all [2][]plain
	for i, p := range []string{path, out} {
		r, err := Open(p)
		if err != nil {
			t.Fatal(err)
		}
		all[i], err = readAll(r)
		r.Close()
		if err != nil || len(all[i]) == 0 {
			t.Fatal(len(all[i]), err)
		}
		for k := range all[i] {
			all[i][k].Time -= all[i][k].Time % 1000
		}
	}
	if d := cmp.Diff(all[0], all[1]); d != "" {
		t.Error(d[:min(len(d), 2000)])
	}
}

func TestSnoopFilesAreNotWritten(t *testing.T) {
	_, err := NewWriter(os.Stdout, WriterConfig{Format: FormatSnoop})
	if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "snoop") {
		t.Error(err)
	}
}
