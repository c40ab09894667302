package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
)

// TestTheLargestRecordIsRead also shows that one byte more is damage.
func TestTheLargestRecordIsRead(t *testing.T) {
	for n, want := range map[uint32]error{MaxRecord: nil, MaxRecord + 1: ErrCorrupt} {
		f := (&builder{o: binary.BigEndian}).pcapFile(magicMicro, 4, 1).u32(1, 2, n, n)
		f.b = append(f.b, make([]byte, n)...)
		r, err := NewMemory(f.b)
		if err != nil {
			t.Fatal(err)
		}
		rec, err := r.Next()
		if !errors.Is(err, want) || err == nil && len(rec.Data) != int(n) {
			t.Errorf("%d bytes: %v, want %v", n, err, want)
		}
	}
}

func TestInterfacesHaveABound(t *testing.T) {
	f := (&builder{o: binary.LittleEndian}).section()
	for range maxInterfaces {
		f.iface(LinkTypeEthernet, 0, nil)
	}
	f.enhanced(maxInterfaces-1, 0, 4, "last", nil)
	f.iface(LinkTypeEthernet, 0, nil)
	r, err := NewMemory(f.b)
	if err != nil {
		t.Fatal(err)
	}
	if rec, err := r.Next(); err != nil || rec.Interface != maxInterfaces-1 {
		t.Errorf("the last interface: %v", err)
	}
	if _, err := r.Next(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("one more: %v", err)
	}
}

// hesitant returns nothing at every second read, which io.Reader allows.
type hesitant struct {
	r     io.Reader
	empty bool
}

func (h *hesitant) Read(b []byte) (int, error) {
	if h.empty = !h.empty; h.empty {
		return 0, nil
	}
	return h.r.Read(b)
}

func TestAReadOfNothingIsNoEnd(t *testing.T) {
	r, err := NewReader(&hesitant{r: bytes.NewReader(sampleNG(binary.LittleEndian))})
	if err != nil {
		t.Fatal(err)
	}
	want, _ := NewMemory(sampleNG(binary.LittleEndian))
	all, _ := readAll(want)
	if got, err := readAll(r); err != nil || len(got) != len(all) || len(all) == 0 {
		t.Errorf("%d records, %v; want %d", len(got), err, len(all))
	}
}

func TestAClosedReaderReturnsErrClosed(t *testing.T) {
	r, err := NewMemory(sampleNG(binary.LittleEndian))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Close(), r.Close()); err != nil {
		t.Error(err)
	}
	if _, err := r.Next(); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
}

// TestStatisticsSpanTheRecords writes records out of order, as interfaces with several queues do.
func TestStatisticsSpanTheRecords(t *testing.T) {
	var out bytes.Buffer
	w, err := NewWriter(&out, WriterConfig{Interfaces: []Interface{{LinkType: LinkTypeEthernet}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{2000, 1000, 9000, 5000} {
		if err := w.Write(&Record{Data: []byte("x"), Time: at}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.SetCounters(0, Counters{Received: 3}), w.Close()); err != nil {
		t.Fatal(err)
	}
	r, err := NewMemory(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readAll(r); err != nil {
		t.Fatal(err)
	}
	if c := r.Interfaces()[0].Counters; c == nil || c.Start != 1000 || c.End != 9000 || c.Received != 3 {
		t.Errorf("%+v", c)
	}
}
