package capture

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var orders = map[string]binary.AppendByteOrder{"little-endian": binary.LittleEndian, "big-endian": binary.BigEndian}

// mustRead reads a whole capture from memory.
func mustRead(t *testing.T, b []byte) ([]plain, *Reader) {
	t.Helper()
	r, err := NewMemory(b)
	if err != nil {
		t.Fatal(err)
	}
	all, err := readAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return all, r
}

func TestPcapReadsInBothByteOrdersAndResolutions(t *testing.T) {
	for name, o := range orders {
		for magic, ns := range map[uint32]int64{magicMicro: 5_000_007_000, magicNano: 5_000_000_007} {
			f := &builder{o: o}
			f.pcapFile(magic, 4, 101).u32(5, 7, 3, 9).raw("abc").u32(0xFFFFFFFF, 0, 0, 0)
			got, _ := mustRead(t, f.b)
			want := []plain{{ns, 9, LinkTypeRaw, "abc"}, {math.MaxUint32 * second, 0, LinkTypeRaw, ""}}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s %x: %s", name, magic, d)
			}
		}
	}
}

func TestPcapOfOldVersionsHasItsLengthsSwapped(t *testing.T) {
	for minor, lens := range map[uint16][2]uint32{1: {9, 3}, 2: {9, 3}, 3: {9, 3}, 4: {3, 9}} {
		f := &builder{o: binary.BigEndian}
		f.pcapFile(magicMicro, minor, 1).u32(0, 0, lens[0], lens[1]).raw("abc")
		if got, _ := mustRead(t, f.b); got[0].Len != 9 || got[0].Data != "abc" {
			t.Errorf("version 2.%d: %+v", minor, got[0])
		}
	}
}

func TestModifiedPcapHasTheDirection(t *testing.T) {
	for name, o := range orders {
		f := &builder{o: o}
		f.pcapFile(magicModified, 4, 1)
		f.u32(1, 2, 2, 2, 3).u16(0x800).raw("\x04\x00in").u32(1, 3, 3, 3, 3).u16(0x800).raw("\x00\x00out")
		r, err := NewMemory(f.b)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []PacketFlags{FlagOutbound, FlagInbound} {
			if rec, err := r.Next(); err != nil || rec.Meta.Flags.Direction() != want {
				t.Errorf("%s: %+v, %v", name, rec, err)
			}
		}
	}
}

func TestPcapHasTheLengthOfTheFrameCheckSequence(t *testing.T) {
	f := (&builder{o: binary.LittleEndian}).pcapFile(magicMicro, 4, 2<<28|linkHasFCS|1)
	_, r := mustRead(t, f.b)
	if in := r.Interfaces()[0]; in.FCSLen != 4 || in.LinkType != LinkTypeEthernet || in.SnapLen != 65535 {
		t.Errorf("%+v", in)
	}
}

func TestPcapngReadsEveryBlockInBothByteOrders(t *testing.T) {
	for name, o := range orders {
		r, err := NewMemory(sampleNG(o))
		if err != nil {
			t.Fatal(err)
		}
		verdict := "\x02" + (&builder{o: o}).num64(2)
		var got []Record
		for rec, err := r.Next(); err != io.EOF; rec, err = r.Next() {
			if err != nil {
				t.Fatal(name, err)
			}
			got = append(got, *rec)
		}
		want := []Record{
			{Data: []byte("hello"), Time: 1_700_000_000_123_456_789, Len: 100, LinkType: LinkTypeEthernet, Meta: Meta{
				Has:   HasFlags | HasQueue | HasDrops | HasPacketID | HasVerdict | HasComment,
				Flags: FlagOutbound, Queue: 7, Drops: 1 << 40, PacketID: 99, Verdict: []byte(verdict), Comment: []byte("first"),
			}},
			{Data: []byte("raw"), Time: 1_600_000_000_654_321_000, Len: 3, Interface: 1, LinkType: LinkTypeRaw},
			{Data: []byte("old!"), Time: 2_000, Len: 4, LinkType: LinkTypeEthernet, Meta: Meta{Has: HasDrops, Drops: 5}},
			{Data: []byte("simple\x00"), Len: 7, LinkType: LinkTypeEthernet},
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		in := []Interface{
			{
				LinkType: LinkTypeEthernet, Name: "eth0", Description: "uplink", Filter: "tcp", FCSLen: 4, OS: "Linux", Hardware: "NIC",
				Counters: &Counters{Start: 3, Received: 10, Dropped: 2},
			},
			{LinkType: LinkTypeRaw, SnapLen: 6},
		}
		if d := cmp.Diff(in, r.Interfaces(), cmpopts.IgnoreUnexported(Interface{})); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestPcapngSectionsHaveTheirOwnByteOrderAndInterfaces(t *testing.T) {
	f := &builder{o: binary.LittleEndian}
	f.section().iface(LinkTypeEthernet, 0, nil).enhanced(0, 1, 1, "a", nil)
	f.o = binary.BigEndian
	f.section().iface(LinkTypeRaw, 0, nil).iface(LinkTypeLoop, 0, nil).enhanced(1, 2, 1, "b", nil)
	r, err := NewMemory(f.b)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []LinkType{LinkTypeEthernet, LinkTypeLoop} {
		rec, err := r.Next()
		if err != nil || rec.LinkType != want || rec.Interface != 2*i || rec.Time != int64(i+1)*1000 {
			t.Errorf("%+v, %v", rec, err)
		}
	}
	f.section().enhanced(0, 3, 1, "c", nil) // the interfaces of the section before are gone
	r, _ = NewMemory(f.b)
	if all, err := readAll(r); len(all) != 2 || !errors.Is(err, ErrCorrupt) {
		t.Errorf("%d records, %v", len(all), err)
	}
}

func TestSimplePacketIsCutToTheSnapLength(t *testing.T) {
	f := &builder{o: binary.BigEndian}
	f.section().iface(LinkTypeEthernet, 5, nil).block(blockSimple, f.body().u32(1000).raw("12345678"))
	if got, _ := mustRead(t, f.b); got[0] != (plain{0, 1000, LinkTypeEthernet, "12345"}) {
		t.Errorf("%+v", got)
	}
}

func TestOldPacketBlockWithoutADropCount(t *testing.T) {
	f := &builder{o: binary.BigEndian}
	f.section().iface(LinkTypeEthernet, 0, nil).block(blockPacket, f.body().u16(0, 0xFFFF).u32(0, 1, 4, 4).raw("data"))
	r, _ := NewMemory(f.b)
	if rec, err := r.Next(); err != nil || rec.Meta.Has != 0 || rec.Meta.Drops != 0 {
		t.Errorf("%+v, %v", rec, err)
	}
}

// slowNS is ticks.ns in numbers without a limit.
func slowNS(res uint8, offset int64, n uint64) int64 {
	per := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(res&0x7F)), nil)
	if res&0x80 != 0 {
		per = new(big.Int).Lsh(big.NewInt(1), uint(res&0x7F))
	}
	v := new(big.Int).SetUint64(n)
	v.Mul(v, big.NewInt(second)).Quo(v, per)
	if v.Cmp(big.NewInt(math.MaxInt64)) > 0 {
		v.SetInt64(math.MaxInt64)
	}
	off := new(big.Int).Mul(big.NewInt(offset), big.NewInt(second))
	if off.CmpAbs(big.NewInt(math.MaxInt64)) > 0 {
		off = new(big.Int).Mul(big.NewInt(math.MaxInt64), big.NewInt(int64(off.Sign())))
	}
	v.Add(v, off)
	if v.Cmp(big.NewInt(math.MaxInt64)) > 0 {
		return math.MaxInt64
	}
	return v.Int64()
}

func TestEveryResolutionAgreesWithBigNumbers(t *testing.T) {
	numbers := []uint64{0, 1, 999, 1_000_000, 1_700_000_000_123_456, 1 << 32, 1<<53 + 1, math.MaxInt64, math.MaxUint64}
	offsets := []int64{0, 1, -1, 1_700_000_000, -1_700_000_000, math.MaxInt64, math.MinInt64 + 1, math.MinInt64}
	for res := range 256 {
		for _, n := range numbers {
			for _, off := range offsets {
				tk := ticks{offset: off}
				tk.resolve(uint8(res))
				if got, want := tk.ns(n), slowNS(uint8(res), off, n); got != want {
					t.Fatalf("resolution %#x, offset %d, tick %d: %d, want %d", res, off, n, got, want)
				}
			}
		}
	}
}

func TestPcapngHonoursResolutionAndOffset(t *testing.T) {
	f := &builder{o: binary.BigEndian}
	f.section().iface(LinkTypeEthernet, 0, func(b *builder) {
		b.option(optIfOffset, b.num64(1000)).option(optIfResolution, "\x83")
	}).enhanced(0, 17, 1, "x", nil)
	if got, _ := mustRead(t, f.b); got[0].Time != 1002*second+second/8 {
		t.Errorf("%d", got[0].Time)
	}
}

func gzipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	w.Write(b)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return z.Bytes()
}

func TestGzipIsOpenedTransparently(t *testing.T) {
	file := sampleNG(binary.LittleEndian)
	want, _ := mustRead(t, file)
	got, _ := mustRead(t, gzipped(t, file))
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	path := filepath.Join(t.TempDir(), "name.says.nothing")
	os.WriteFile(path, gzipped(t, file), 0o600)
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := readAll(r); err != nil || !cmp.Equal(want, got) {
		t.Error(err, len(got))
	}
	if r.Format() != FormatPcapng || r.Records() != int64(len(want)) || r.Offset() != int64(len(file)) {
		t.Error(r.Format(), r.Records(), r.Offset())
	}
	if r.Close() != nil {
		t.Error("close")
	}
	if _, err := r.Next(); err != io.EOF && !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestDamagedGzipDeliversTheRecordsBefore(t *testing.T) {
	f := (&builder{o: binary.LittleEndian}).pcapFile(magicNano, 4, 1)
	for i := range 100_000 {
		f.u32(uint32(i), uint32(i*7919), 4, 4).raw("data")
	}
	z := gzipped(t, f.b)
	for name, c := range map[string]struct {
		file []byte
		want error
	}{
		"cut":          {z[:len(z)-len(z)/3], ErrTruncated},
		"cut at crc":   {z[:len(z)-6], ErrTruncated},
		"wrong crc":    {append(z[:len(z)-8:len(z)-8], make([]byte, 8)...), ErrCorrupt},
		"header alone": {z[:5], ErrTruncated},
	} {
		r, err := NewReader(bytes.NewReader(c.file))
		var got []plain
		if err == nil {
			got, err = readAll(r)
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if name != "header alone" && len(got) < 1000 {
			t.Errorf("%s: only %d records", name, len(got))
		}
	}
}

func TestOtherFilesAreNamed(t *testing.T) {
	for head, want := range map[string]string{
		"hello, world":     "neither pcap, pcapng nor snoop",
		"snoopy is a dog.": "neither pcap, pcapng nor snoop",
		"snoop\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x04": "snoop version 3",
		"\x28\xb5\x2f\xfd____________":                      "zstd -dc",
		"\xfd7zXZ\x00____________":                          "xz -dc",
		"BZh9____________":                                  "bzip2 -dc",
		"\x04\x22\x4d\x18____________":                      "lz4 -dc",
	} {
		_, err := NewMemory([]byte(head))
		if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", head, err)
		}
	}
}

func TestErrorsNameThePlace(t *testing.T) {
	file := func() *builder {
		return (&builder{o: binary.LittleEndian}).pcapFile(magicNano, 4, 1).u32(1, 2, 4, 4).raw("good")
	}
	ng := func() *builder {
		f := &builder{o: binary.LittleEndian}
		return f.section().iface(LinkTypeEthernet, 0, nil).enhanced(0, 1, 4, "good", nil)
	}
	block := func(kind uint32, body func(b *builder)) []byte {
		f := ng()
		b := f.body()
		body(b)
		return f.block(kind, b).b
	}
	const second = 44           // offset of the second record in file
	offNG := int64(len(ng().b)) // and in ng
	for name, c := range map[string]struct {
		file   []byte
		at     int64
		record int64
		err    error
		what   string
	}{
		"empty file":           {nil, 0, 0, ErrTruncated, "magic number"},
		"pcap header cut":      {file().b[:20], 0, 0, ErrTruncated, "24 bytes wanted, 20 there"},
		"pcap version":         {(&builder{o: binary.BigEndian}).u32(magicNano).u16(3, 0).u32(0, 0, 0, 0).b, 0, 0, ErrFormat, "version 3.0"},
		"record header cut":    {file().raw("123").b, second, 2, ErrTruncated, "16 bytes wanted, 3 there"},
		"record cut":           {file().u32(1, 2, 100, 100).raw("short").b, second, 2, ErrTruncated, "100 bytes of packet wanted, 5 there"},
		"record too long":      {file().u32(1, 2, MaxRecord+1, 1).b, second, 2, ErrCorrupt, "262145 found"},
		"section header cut":   {ng().b[:27], 0, 0, ErrTruncated, "28 bytes wanted, 27 there"},
		"byte order magic":     {(&builder{o: binary.BigEndian}).u32(blockSection, 28, 7, 0, 0, 0, 0).b, 0, 0, ErrCorrupt, "byte order magic"},
		"pcapng version":       {(&builder{o: binary.BigEndian}).u32(blockSection, 28, byteOrderMagic).u16(2, 0).u32(0, 0, 28).b, 0, 0, ErrFormat, "version 2.0"},
		"section too short":    {(&builder{o: binary.BigEndian}).u32(blockSection, 24, byteOrderMagic).u16(1, 0).u32(0, 0, 24).b, 0, 0, ErrCorrupt, "24 found"},
		"block header cut":     {ng().raw("1234567").b, offNG, 2, ErrTruncated, "8 bytes wanted, 7 there"},
		"block too short":      {ng().u32(6, 8, 8).b, offNG, 2, ErrCorrupt, "8 found"},
		"block not aligned":    {ng().u32(6, 33).raw(string(make([]byte, 99))).b, offNG, 2, ErrCorrupt, "33 found"},
		"block too long":       {ng().u32(6, maxBlock+4).b, offNG, 2, ErrCorrupt, "16777220 found"},
		"block cut":            {ng().u32(6, 100, 0, 0).b, offNG, 2, ErrTruncated, "block of 100 bytes wanted, 16 there"},
		"unknown block cut":    {ng().u32(77, 100, 0, 0).b, offNG, 2, ErrTruncated, "block of 100 bytes wanted, 16 there"},
		"unknown block's tail": {ng().u32(77, 16, 0).raw("12").b, offNG, 2, ErrTruncated, "block of 16 bytes wanted, 14 there"},
		"lengths differ":       {ng().u32(77, 16, 0, 20).b, offNG, 2, ErrCorrupt, "length 16 wanted again at its end, 20 found"},
		"lengths differ down":  {ng().u32(77, 16, 0, 12).b, offNG, 2, ErrCorrupt, "length 16 wanted again at its end, 12 found"},
		"no such interface":    {ng().enhanced(1, 0, 0, "", nil).b, offNG, 2, ErrCorrupt, "interface 1 is named, the section has described 1"},
		"packet block short":   {block(6, func(b *builder) { b.u32(0, 0) }), offNG, 2, ErrCorrupt, "20 bytes wanted, 8 found"},
		"old block short":      {block(2, func(b *builder) { b.u32(0, 0) }), offNG, 2, ErrCorrupt, "20 bytes wanted, 8 found"},
		"simple block short":   {block(3, func(*builder) {}), offNG, 2, ErrCorrupt, "4 bytes wanted, 0 found"},
		"simple data short":    {block(3, func(b *builder) { b.u32(9, 0, 0) }), offNG, 2, ErrCorrupt, "9 bytes of packet wanted, the block has 8"},
		"statistics short":     {block(5, func(b *builder) { b.u32(0) }), offNG, 2, ErrCorrupt, "12 bytes wanted, 4 found"},
		"interface short":      {block(1, func(b *builder) { b.u32(0) }), offNG, 2, ErrCorrupt, "8 bytes wanted, 4 found"},
		"data beyond block":    {block(6, func(b *builder) { b.u32(0, 0, 0, 5, 5, 0) }), offNG, 2, ErrCorrupt, "5 bytes of packet wanted, the block has 4"},
		"data beyond bound":    {block(6, func(b *builder) { b.u32(0, 0, 0, MaxRecord+1, 5, 0) }), offNG, 2, ErrCorrupt, "262145 found"},
		"option beyond block":  {block(6, func(b *builder) { b.u32(0, 0, 0, 0, 0).u16(1, 5).u32(0) }), offNG, 2, ErrCorrupt, "option 1 of 5 bytes, the block has 4 left"},
		"option of odd length": {block(6, func(b *builder) { b.u32(0, 0, 0, 0, 0).u16(2, 3).u32(0) }), offNG, 2, ErrCorrupt, "option 2 has a wrong length, 3"},
		"resolution too long":  {block(1, func(b *builder) { b.u32(1, 0).option(9, "12") }), offNG, 2, ErrCorrupt, "option 9 has a wrong length, 2"},
		"counter of 4 bytes":   {block(5, func(b *builder) { b.u32(0, 0, 0).option(4, "1234") }), offNG, 2, ErrCorrupt, "option 4 has a wrong length, 4"},
	} {
		for _, in := range []io.Reader{nil, bytes.NewReader(c.file), iotest.OneByteReader(bytes.NewReader(c.file))} {
			r, err := NewMemory(c.file)
			if in != nil {
				r, err = NewReader(in)
			}
			if err == nil {
				_, err = readAll(r)
			}
			var e *Error
			if !errors.As(err, &e) {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if e.Offset != c.at || e.Record != c.record || !errors.Is(err, c.err) || !strings.Contains(e.What, c.what) {
				t.Errorf("%s: %v (record %d, offset %d)", name, err, e.Record, e.Offset)
			}
		}
	}
}

func TestReadErrorsAreNotCalledTruncation(t *testing.T) {
	disk := errors.New("input/output error")
	file := (&builder{o: binary.LittleEndian}).pcapFile(magicNano, 4, 1).u32(1, 2, 4, 4).raw("good").b
	for _, n := range []int{3, 20, 24, 30, 42, 44} {
		r, err := NewReader(io.MultiReader(bytes.NewReader(file[:n]), iotest.ErrReader(disk)))
		if err == nil {
			_, err = readAll(r)
		}
		if !errors.Is(err, disk) || errors.Is(err, ErrTruncated) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
	if r, err := NewReader(lazy{}); err == nil || !errors.Is(err, io.ErrNoProgress) {
		t.Error(r, err)
	}
}

// lazy is a reader that never reads anything.
type lazy struct{}

func (lazy) Read([]byte) (int, error) { return 0, nil }

func TestOpenNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.pcap")
	if _, err := Open(path); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	os.WriteFile(path, []byte("hello, world"), 0o600)
	if _, err := Open(path); err == nil || !strings.HasPrefix(err.Error(), path+": header at offset 0: ") {
		t.Error(err)
	}
}

// class sorts an error for comparison.
func class(err error) string {
	for _, e := range []error{ErrFormat, ErrTruncated, ErrCorrupt, ErrLinkType} {
		if errors.Is(err, e) {
			return e.Error()
		}
	}
	if err != nil {
		return "other: " + err.Error()
	}
	return ""
}

// both reads a file from memory and from a stream of small pieces, and complains where they differ
// or where an error is of no known class.
func both(t *testing.T, file []byte) ([]plain, error) {
	t.Helper()
	var got [2][]plain
	var errs [2]error
	for i := range got {
		r, err := NewMemory(file)
		if i == 1 {
			r, err = NewReader(iotest.HalfReader(bytes.NewReader(file)))
		}
		if err == nil {
			got[i], err = readAll(r)
		}
		errs[i] = err
	}
	if c := class(errs[0]); c != class(errs[1]) || strings.HasPrefix(c, "other") {
		t.Fatalf("memory says %v, stream says %v", errs[0], errs[1])
	}
	if !cmp.Equal(got[0], got[1]) {
		t.Fatal("memory and stream differ")
	}
	return got[0], errs[0]
}

func TestACaptureCutAtAnyByteDeliversTheRecordsBefore(t *testing.T) {
	pcap := (&builder{o: binary.LittleEndian}).pcapFile(magicNano, 4, 1)
	for i := range 5 {
		pcap.u32(uint32(i), 2, 5, 5).raw("bytes")
	}
	for _, file := range [][]byte{pcap.b, sampleNG(binary.LittleEndian), sampleNG(binary.BigEndian)} {
		whole, _ := mustRead(t, file)
		clean := 0
		for n := range file {
			got, err := both(t, file[:n])
			if err == nil {
				clean++
			} else if !errors.Is(err, ErrTruncated) {
				t.Errorf("cut at %d: %v", n, err)
			}
			if !cmp.Equal(whole[:len(got)], got, cmpopts.EquateEmpty()) {
				t.Errorf("cut at %d: other records", n)
			}
		}
		if clean > 12 {
			t.Errorf("%d cuts went unnoticed; only those between blocks may", clean)
		}
	}
}

func TestACaptureCorruptedAtAnyByteNeverPanics(t *testing.T) {
	pcap := (&builder{o: binary.BigEndian}).pcapFile(magicMicro, 4, 1).u32(1, 2, 5, 5).raw("bytes").u32(3, 4, 2, 2).raw("by").b
	for _, file := range [][]byte{pcap, sampleNG(binary.LittleEndian), sampleNG(binary.BigEndian)} {
		for i := range file {
			for _, v := range []byte{0, 1, 0x7F, 0x80, 0xFF, file[i] ^ 1, file[i] + 4} {
				bad := bytes.Clone(file)
				bad[i] = v
				both(t, bad)
			}
		}
	}
}

func TestHugeLengthsInShortFilesCostNoMemory(t *testing.T) {
	f := &builder{o: binary.LittleEndian}
	f.section().iface(LinkTypeEthernet, 0, nil).u32(blockEnhanced, maxBlock, 0)
	r, err := NewReader(bytes.NewReader(f.b))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readAll(r); !errors.Is(err, ErrTruncated) {
		t.Error(err)
	}
	if cap(r.src.store) > 2*windowSize {
		t.Errorf("window of %d bytes", cap(r.src.store))
	}
}

func TestLargeBlocksStreamThrough(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", MaxRecord/16)
	f := &builder{o: binary.BigEndian}
	f.section().iface(LinkTypeEthernet, 0, nil)
	f.block(0x7777, f.body().raw(strings.Repeat("skip", 1<<20)))
	f.enhanced(0, 1, len(big), big, nil).enhanced(0, 2, 3, "end", nil)
	got, err := both(t, f.b)
	if err != nil || len(got) != 2 || got[0].Data != big || got[1].Data != "end" {
		t.Error(len(got), err)
	}
	r, _ := NewReader(bytes.NewReader(f.b))
	readAll(r)
	if cap(r.src.store) > 3*MaxRecord {
		t.Errorf("window of %d bytes", cap(r.src.store))
	}
}

func TestMemoryRecordsAreNotCopied(t *testing.T) {
	pcap := (&builder{o: binary.LittleEndian}).pcapFile(magicNano, 4, 1).u32(1, 2, 5, 5).raw("hello").u32(0, 0, 0, 0).b
	for _, file := range [][]byte{sampleNG(binary.LittleEndian), pcap} {
		r, _ := NewMemory(file)
		rec, _ := r.Next()
		at := bytes.Index(file, []byte("hello"))
		if &rec.Data[0] != &file[at] || cap(rec.Data) != len(rec.Data) {
			t.Errorf("%v: not a slice of the file, or one that reaches beyond the record", r.Format())
		}
	}
}

func TestReadingAllocatesNothingPerRecord(t *testing.T) {
	pcap := (&builder{o: binary.LittleEndian}).pcapFile(magicNano, 4, 1)
	ng := &builder{o: binary.LittleEndian}
	ng.section().iface(LinkTypeEthernet, 0, nil)
	for i := range 20_000 {
		pcap.u32(uint32(i), 2, 40, 40).raw(strings.Repeat("x", 40))
		ng.enhanced(0, uint64(i), 40, strings.Repeat("x", 40), func(b *builder) {
			b.option(optFlags, "\x01\x00\x00\x00").option(optComment, "hello")
		})
	}
	for name, file := range map[string][]byte{"pcap": pcap.b, "pcapng": ng.b} {
		m, _ := NewMemory(file)
		s, _ := NewReader(bytes.NewReader(file))
		for kind, r := range map[string]*Reader{"memory": m, "stream": s} {
			if n := testing.AllocsPerRun(19_000, func() { r.Next() }); n != 0 {
				t.Errorf("%s from %s: %v allocations per record", name, kind, n)
			}
			if _, err := r.Next(); err != nil {
				t.Error(err)
			}
		}
	}
}
