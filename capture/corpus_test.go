package capture

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/millrace/millrace/internal/testkit/testpcaps"
)

// plain is a record as both the reader and the oracle return it.
type plain struct {
	Time int64
	Len  int
	Link LinkType
	Data string
}

// broken are captures whose timestamps have fractions above a second: pcapgo computes those in 32
// bits and overflows; libpcap does not.
var broken = map[string]bool{"fuzz-2021-06-07-c6c72a0a56.pcap": true}

// readAll returns every record and the error at the end, nil for a clean one.
func readAll(r *Reader) ([]plain, error) {
	var all []plain
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, plain{rec.Time, rec.Len, rec.LinkType, string(rec.Data)})
	}
}

// oracle reads a capture with pcapgo.
func oracle(path string) ([]plain, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var next func() ([]byte, gopacket.CaptureInfo, error)
	var link func(gopacket.CaptureInfo) layers.LinkType
	if r, err := pcapgo.NewReader(f); err == nil {
		r.SetSnaplen(MaxRecord)
		next, link = r.ReadPacketData, func(gopacket.CaptureInfo) layers.LinkType { return r.LinkType() }
	} else {
		f.Seek(0, io.SeekStart)
		ng, err := pcapgo.NewNgReader(f, pcapgo.NgReaderOptions{WantMixedLinkType: true})
		if err != nil {
			return nil, err
		}
		next = ng.ReadPacketData
		link = func(ci gopacket.CaptureInfo) layers.LinkType { return ci.AncillaryData[0].(layers.LinkType) }
	}
	var all []plain
	for {
		data, ci, err := next()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		lt := LinkType(link(ci))
		all = append(all, plain{ci.Timestamp.UnixNano(), ci.Length, lt, string(data)})
	}
}

// countByTcpdump returns the number of packets that tcpdump sees in a capture.
func countByTcpdump(t *testing.T, path string) int {
	t.Helper()
	out, err := exec.Command("tcpdump", "--count", "-nr", path).Output()
	if err != nil {
		t.Fatalf("tcpdump -r %s: %v", path, err)
	}
	n, err := strconv.Atoi(strings.Fields(string(out))[0])
	if err != nil {
		t.Fatalf("tcpdump says %q", out)
	}
	return n
}

func TestEveryCaptureReadsLikePcapgo(t *testing.T) {
	for _, path := range testpcaps.Files(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			r, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			got, err := readAll(r)
			want, oracleErr := oracle(path)
			if err != nil || oracleErr != nil {
				t.Logf("ours: %d records, %v; pcapgo: %d records, %v", len(got), err, len(want), oracleErr)
			}
			if oracleErr != nil && err == nil {
				if n := countByTcpdump(t, path); n != len(got) {
					t.Errorf("%d records, tcpdump sees %d", len(got), n)
				}
				got = got[:min(len(got), len(want))]
			}
			if err != nil && oracleErr == nil {
				t.Error(err)
			}
			for i := range min(len(got), len(want)) {
				if want[i].Time != got[i].Time && broken[filepath.Base(path)] {
					want[i].Time = got[i].Time
				}
			}
			if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
				t.Errorf("records differ (-pcapgo +ours):\n%.2000s", d)
			}
		})
	}
}

func TestMemoryAndStreamReadAlike(t *testing.T) {
	for _, path := range testpcaps.Files(t) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		m, err := NewMemory(b)
		if err != nil {
			t.Fatal(err)
		}
		s, err := NewReader(io.LimitReader(bytes.NewReader(b), int64(len(b))))
		if err != nil {
			t.Fatal(err)
		}
		fromMemory, err1 := readAll(m)
		fromStream, err2 := readAll(s)
		if (err1 == nil) != (err2 == nil) || errors.Is(err1, ErrTruncated) != errors.Is(err2, ErrTruncated) {
			t.Errorf("%s: %v from memory, %v from a stream", path, err1, err2)
		}
		if !cmp.Equal(fromMemory, fromStream) {
			t.Errorf("%s: memory and stream differ", path)
		}
	}
}
