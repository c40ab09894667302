package packet

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unsafe"
)

// TestLayout compares packet.Desc with struct mr_desc, as the C compiler lays it out.
func TestLayout(t *testing.T) {
	if unsafe.Sizeof(Desc{}) != DescSize {
		t.Fatalf("Desc has %d bytes, want %d", unsafe.Sizeof(Desc{}), DescSize)
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler: run `make deps`")
	}
	var asserts strings.Builder
	asserts.WriteString("#include <stddef.h>\n#include \"desc.h\"\n")
	typ := reflect.TypeFor[Desc]()
	names := map[string]string{"NextHop": "next_hop"}
	for i := range typ.NumField() {
		f := typ.Field(i)
		name := strings.ToLower(f.Name)
		if n, ok := names[f.Name]; ok {
			name = n
		}
		line := "_Static_assert(offsetof(struct mr_desc, NAME) == OFF && sizeof(((struct mr_desc *)0)->NAME) == SIZE, \"NAME\");\n"
		line = strings.NewReplacer("NAME", name, "OFF", itoa(f.Offset), "SIZE", itoa(f.Type.Size())).Replace(line)
		asserts.WriteString(line)
	}
	asserts.WriteString("_Static_assert(sizeof(struct mr_desc) == 32, \"size\");\n")
	for name, f := range map[string]Flags{
		"MR_FLAG_IPV4": FlagIPv4, "MR_FLAG_IPV6": FlagIPv6, "MR_FLAG_VLAN": FlagVLAN,
		"MR_FLAG_IP_CHECKSUM_OK": FlagIPChecksumOK, "MR_FLAG_L4_CHECKSUM_OK": FlagL4ChecksumOK,
		"MR_FLAG_L4_NO_CHECKSUM": FlagL4NoChecksum, "MR_FLAG_FRAGMENT": FlagFragment,
		"MR_FLAG_FRAGMENT_REST": FlagFragmentRest, "MR_FLAG_OPTIONS": FlagOptions,
		"MR_FLAG_MALFORMED": FlagMalformed, "MR_FLAG_TRUNCATED": FlagTruncated,
		"MR_FLAG_MORE": FlagMore, "MR_FLAG_TUNNEL": FlagTunnel,
		"MR_FLAG_HANDED": FlagHanded, "MR_FLAG_HANDED_AGAIN": FlagHandedAgain,
		"MR_FLAG_OFFLOAD": FlagOffload,
	} {
		asserts.WriteString("_Static_assert(" + name + " == " + itoa(uintptr(f)) + ", \"" + name + "\");\n")
	}
	src := filepath.Join(t.TempDir(), "layout.c")
	if err := os.WriteFile(src, []byte(asserts.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-fsyntax-only", "-I.", src).CombinedOutput(); err != nil {
		t.Errorf("desc.h differs from Desc:\n%s", out)
	}
}

func itoa(v uintptr) string {
	if v < 10 {
		return string('0' + byte(v))
	}
	return itoa(v/10) + string('0'+byte(v%10))
}

func TestDescHasNoPointers(t *testing.T) {
	typ := reflect.TypeFor[Desc]()
	for i := range typ.NumField() {
		if k := typ.Field(i).Type.Kind(); k < reflect.Int || k > reflect.Uint64 {
			t.Errorf("%s is a %v: the garbage collector would scan packets", typ.Field(i).Name, k)
		}
	}
}

func TestEveryVerdictHasAName(t *testing.T) {
	seen := map[string]Verdict{}
	for v := range Verdict(Verdicts) {
		if v > Deliver && v < Drop {
			continue
		}
		name := v.String()
		if other, twice := seen[name]; twice || name == "unknown" {
			t.Errorf("verdict %d is called %q, as is %d", v, name, other)
		}
		seen[name] = v
		if v.Dropped() != (v >= Drop) {
			t.Errorf("%v: Dropped() = %v", v, v.Dropped())
		}
	}
	for _, v := range []Verdict{Release + 1, Verdict(Verdicts), 255} {
		if v.String() != "unknown" {
			t.Errorf("verdict %d, which does not exist, is called %v", v, v)
		}
	}
}

// TestOnePageListsEveryReason compares docs/drop-reasons.md with the verdicts, in their order.
func TestOnePageListsEveryReason(t *testing.T) {
	page, err := os.ReadFile("../docs/drop-reasons.md")
	if err != nil {
		t.Fatal(err)
	}
	v := Drop
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\| .+ \\|$").FindAllStringSubmatch(string(page), -1) {
		if int(v) >= Verdicts || row[1] != v.String() {
			t.Fatalf("the page has %s where %v belongs", row[1], v)
		}
		v++
	}
	if int(v) != Verdicts {
		t.Errorf("the page lacks %v and what follows", v)
	}
}

func TestHasNeedsAllBits(t *testing.T) {
	f := FlagIPv4 | FlagMore
	if !f.Has(FlagIPv4) || !f.Has(FlagIPv4|FlagMore) || f.Has(FlagIPv4|FlagVLAN) || f.Has(FlagVLAN) {
		t.Errorf("%b", f)
	}
}

func TestArenaView(t *testing.T) {
	a := &Arena{Mem: make([]byte, 4*2048), Shift: 11}
	d := Desc{Off: 2048 + 256, Len: 60}
	if n := a.Frames(); n != 4 {
		t.Errorf("%d frames, want 4", n)
	}
	if f := a.Frame(d.Off); f != 1 {
		t.Errorf("frame %d, want 1", f)
	}
	if h, r := a.Headroom(&d), a.Tailroom(&d); h != 256 || r != 2048-256-60 {
		t.Errorf("headroom %d, tailroom %d", h, r)
	}
	p := a.Bytes(&d)
	if len(p) != 60 || cap(p) != 60 || &p[0] != &a.Mem[d.Off] {
		t.Errorf("Bytes: len %d cap %d", len(p), cap(p))
	}
}

func TestBytesOutsideOfTheArenaPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	a := &Arena{Mem: make([]byte, 2048), Shift: 11}
	a.Bytes(&Desc{Off: 2000, Len: 49})
}

func TestBatchTimeAroundTheWrap(t *testing.T) {
	b := NewBatch(nil, 3)
	b.Base = 5<<32 + 10
	for _, at := range []int64{b.Base - 100, b.Base, b.Base + 2_000_000_000} {
		b.Append(Desc{Stamp: uint32(at)})
		if got := b.Time(b.Len() - 1); got != at {
			t.Errorf("Time = %d, want %d", got, at)
		}
	}
}

func TestConsumeKeepsTheRestInOrder(t *testing.T) {
	b := NewBatch(nil, 4)
	for off := range uint32(4) {
		b.Append(Desc{Off: off})
	}
	b.Consume(3)
	if b.Len() != 1 || b.D[0].Off != 3 || b.Room() != 3 {
		t.Errorf("after Consume(3): %d packets, first %d, room %d", b.Len(), b.D[0].Off, b.Room())
	}
	b.Consume(1)
	if b.Len() != 0 {
		t.Errorf("%d packets left", b.Len())
	}
}

// TestInlining keeps the accessors of the hot path small enough for the compiler to inline.
func TestInlining(t *testing.T) {
	out, err := exec.Command("go", "build", "-gcflags=-m", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, name := range []string{
		"(*Arena).Bytes", "(*Arena).Frame", "(*Arena).Headroom", "(*Arena).Tailroom", "(*Batch).Append",
		"(*Batch).Bytes", "(*Batch).Room", "(*Batch).Reset", "(*Batch).Time", "Flags.Has", "Verdict.Dropped",
	} {
		if !strings.Contains(string(out), "can inline "+name) {
			t.Errorf("%s is no longer inlined", name)
		}
	}
}
