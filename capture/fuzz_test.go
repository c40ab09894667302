package capture

import (
	"encoding/binary"
	"errors"
	"testing"
)

// fuzzFile reads a file both ways, and checks that what was read survives a round trip through the
// writer.
func fuzzFile(t *testing.T, file []byte) {
	if len(file) > 1<<16 {
		t.Skip("long files take time and show nothing new")
	}
	all, _ := both(t, file)
	var out []byte
	w, err := NewWriter(writerFunc(func(p []byte) { out = append(out, p...) }), WriterConfig{Interfaces: ethernet})
	if err != nil {
		t.Fatal(err)
	}
	var kept []plain
	for _, p := range all {
		err := w.Write(&Record{Data: []byte(p.Data), Time: p.Time, Len: p.Len})
		if err != nil && !errors.Is(err, ErrRange) {
			t.Fatal(err)
		}
		if err == nil {
			p.Link, p.Len = LinkTypeEthernet, max(p.Len, len(p.Data))
			kept = append(kept, p)
		}
		_, err = ToEthernet(p.Link, []byte(p.Data), nil)
		if err != nil && !errors.Is(err, ErrLinkType) && !errors.Is(err, ErrNotIP) && !errors.Is(err, ErrTruncated) {
			t.Fatalf("ToEthernet: %v", err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := both(t, out)
	if err != nil || len(again) != len(kept) {
		t.Fatalf("%d of %d records after a round trip, %v", len(again), len(kept), err)
	}
	for i := range kept {
		if again[i] != kept[i] {
			t.Fatalf("record %d is %+v after a round trip, was %+v", i, again[i], kept[i])
		}
	}
}

type writerFunc func(p []byte)

func (f writerFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

func FuzzPcap(f *testing.F) {
	for _, o := range orders {
		for _, magic := range []uint32{magicMicro, magicNano, magicModified} {
			b := (&builder{o: o}).pcapFile(magic, 4, 113).u32(1, 2, 4, 60)
			if magic == magicModified {
				b.u32(1).u16(0x800).raw("\x04\x00")
			}
			f.Add(b.raw("data").b)
		}
	}
	f.Fuzz(fuzzFile)
}

func FuzzPcapng(f *testing.F) {
	f.Add(sampleNG(binary.LittleEndian))
	f.Add(sampleNG(binary.BigEndian))
	f.Fuzz(fuzzFile)
}

func FuzzSnoop(f *testing.F) {
	f.Add(snoopFile(4, 30, 0))
	f.Fuzz(fuzzFile)
}

// FuzzToEthernet checks that a frame is its packet's end behind a header of 14 bytes.
func FuzzToEthernet(f *testing.F) {
	for lt := range linkNames {
		f.Add(uint16(lt), []byte("\x45\x00\x00\x14\x08\x00\x86\xdd\x00\x21\x00\x57\xff\x03\x00\x21"))
	}
	f.Fuzz(func(t *testing.T, lt uint16, data []byte) {
		if LinkType(lt) == LinkTypeEthernet {
			t.Skip("as it is")
		}
		_, skip, err := Replace(LinkType(lt), data)
		if err == nil && (skip < 0 || skip > len(data)) {
			t.Fatalf("skips %d of %d bytes", skip, len(data))
		}
		frame, err2 := ToEthernet(LinkType(lt), data, nil)
		if !errors.Is(err2, err) || err == nil && len(frame) != 14+len(data)-skip {
			t.Fatalf("%d bytes of %d, %v and %v", len(frame), len(data), err, err2)
		}
	})
}
