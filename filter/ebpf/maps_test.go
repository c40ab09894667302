package ebpf

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"
)

// dump returns the entries of a map as "KEY: VALUE".
func dump(t testing.TB, s *Store, ref string) (list []string) {
	t.Helper()
	err := s.DumpMap(ref, func(e Entry) error {
		list = append(list, string(e.Key)+": "+string(e.Value))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func entry(key, value string) Entry {
	return Entry{Key: json.RawMessage(key), Value: json.RawMessage(value)}
}

// typed returns a store with typed.o, which needs no network.
func typed(t testing.TB) *Store {
	t.Helper()
	s := open(t, t.TempDir())
	if _, err := s.Load(objects+"typed.o", ""); err != nil {
		t.Fatal(err)
	}
	return s
}

const recordKey = `{"x":-3,"y":9007199254740993}`

const record = `{"small":255,"flag":true,"name":"eth0","ports":[1,2,65535],"colour":"BLUE","at":{"x":1,"y":-1},` +
	`"word":67305985,"bytes":[1,2,3,4],"low":5,"high":536870911,"below":-8,"ratio":0.5,"big":18446744073709551615,` +
	`"huge":"0xffffffffffffffffffffffffffffffff"}`

func TestValuesAreJSONByTheirTypes(t *testing.T) {
	s := typed(t)
	if err := s.UpdateMap("typed/records", entry(recordKey, record), Always); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{recordKey + ": " + record}, dump(t, s, "typed/records")); diff != "" {
		t.Error(diff)
	}
	// A part of a struct leaves the rest as it is.
	for _, part := range []string{`{"colour":"GREEN"}`, `{"bytes":[9,2,3,4]}`, `{"name":[97,0,98,0,0,0,0,0]}`, `{"low":1}`, `{"at":{"y":7}}`, `{"colour":3}`} {
		if err := s.UpdateMap("typed/records", entry(recordKey, part), Existing); err != nil {
			t.Errorf("%s: %v", part, err)
		}
	}
	want := strings.NewReplacer(`"BLUE"`, "3", "[1,2,3,4]", "[9,2,3,4]", "67305985", "67305993", `"eth0"`, "[97,0,98,0,0,0,0,0]",
		`"low":5`, `"low":1`, `"y":-1`, `"y":7`).Replace(record)
	if diff := cmp.Diff([]string{recordKey + ": " + want}, dump(t, s, "typed/records")); diff != "" {
		t.Error(diff)
	}
	if err := s.DeleteKey("typed/records", json.RawMessage(recordKey)); err != nil {
		t.Error(err)
	}
	if err := s.DeleteKey("typed/records", json.RawMessage(recordKey)); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleted twice: %v", err)
	}
}

func TestOtherMapsAreReadAndWritten(t *testing.T) {
	s := typed(t)
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		t.Fatal(err)
	}
	all := func(v string) string { return "[" + strings.TrimSuffix(strings.Repeat(v+",", cpus), ",") + "]" }
	for _, tc := range []struct {
		ref, key, value string
		want            []string
	}{
		{"typed/percpu", "1", "7", []string{"0: " + all("0"), "1: " + all("7")}},
		{"typed/percpu", "0", all("3"), []string{"0: " + all("3"), "1: " + all("7")}},
		{"typed/untyped", `"01020304"`, `"0xaabbccddeeff"`, []string{`"01020304": "aabbccddeeff"`}},
		{"typed/prefixes", `{"bits":24,"addr":[192,0,2,1]}`, "9", []string{`{"bits":24,"addr":[192,0,2,1]}: 9`}},
		{"typed/.bss", "0", `{"total":41}`, []string{`0: {"total":41}`}},
	} {
		if err := s.UpdateMap(tc.ref, entry(tc.key, tc.value), Always); err != nil {
			t.Errorf("%s: %v", tc.ref, err)
			continue
		}
		if diff := cmp.Diff(tc.want, dump(t, s, tc.ref)); diff != "" {
			t.Errorf("%s: %s", tc.ref, diff)
		}
	}
	if diff := cmp.Diff([]string{`0: {"setting":7}`}, dump(t, s, "typed/.rodata")); diff != "" {
		t.Error(diff)
	}
}

func TestWrongValuesAreRefusedAndNamed(t *testing.T) {
	s := typed(t)
	for _, tc := range []struct {
		ref, key, value, want string
		is                    error
	}{
		{"typed/records", recordKey, `{"small":256}`, "value.small: 256, and a number of 8 bits, from 0 to 255, is wanted", ErrValue},
		{"typed/records", recordKey, `{"small":-1}`, "value.small", ErrValue},
		{"typed/records", recordKey, `{"small":1.5}`, "whole number", ErrValue},
		{"typed/records", recordKey, `{"flag":"yes"}`, "value.flag", ErrValue},
		{"typed/records", recordKey, `{"nmae":"x"}`, `value has no member "nmae"`, ErrValue},
		{"typed/records", recordKey, `{"name":"longer than eight"}`, "at most 8 bytes", ErrValue},
		{"typed/records", recordKey, `{"ports":[1,2]}`, "a list of 3", ErrValue},
		{"typed/records", recordKey, `{"ports":[1,2,"x"]}`, "value.ports[2]", ErrValue},
		{"typed/records", recordKey, `{"colour":"PINK"}`, "a value of enum colour", ErrValue},
		{"typed/records", recordKey, `{"low":8}`, "a number of 3 bits", ErrValue},
		{"typed/records", recordKey, `{"below":8}`, "a number of 4 bits, from -8 to 7,", ErrValue},
		{"typed/records", recordKey, `{"word":1,"bytes":[2,0,0,0]}`, "overlaps another member and differs", ErrValue},
		{"typed/records", recordKey, `{"huge":"0x100000000000000000000000000000000"}`, "128 bits", ErrValue},
		{"typed/records", recordKey, `7`, "an object", ErrValue},
		{"typed/records", recordKey, `{} {}`, "more follows", ErrValue},
		{"typed/records", `{"x":`, `{}`, "key: ", ErrValue},
		{"typed/percpu", "0", "[1]", "one for each CPU", ErrValue},
		{"typed/percpu", "2", "1", "lies beyond its 2 entries", nil},
		{"typed/untyped", `"0102"`, `"000000000000"`, "4 hexadecimal bytes", ErrValue},
		{"typed/.rodata", "0", `{"setting":1}`, "frozen or read-only", nil},
		{"typed/none", "0", "0", "there are .bss, .rodata, percpu, prefixes", ErrNotFound},
		{"tpyed/records", "0", "0", "loaded are typed", ErrNotFound},
		{"records", "0", "0", "say OBJECT/MAP", ErrUsage},
		{"id:x", "0", "0", "no number", ErrUsage},
	} {
		if tc.ref == "typed/percpu" && tc.value == "[1]" {
			if n, _ := ebpf.PossibleCPU(); n == 1 {
				continue
			}
		}
		err := s.UpdateMap(tc.ref, entry(tc.key, tc.value), Always)
		if err == nil || !strings.Contains(err.Error(), tc.want) || tc.is != nil && !errors.Is(err, tc.is) {
			t.Errorf("%s %s %s: %v, want %q", tc.ref, tc.key, tc.value, err, tc.want)
		}
	}
	if have := dump(t, s, "typed/records"); len(have) > 0 {
		t.Errorf("a refused value was written: %v", have)
	}
	if err := s.UpdateMap("typed/records", entry(recordKey, "{}"), Existing); !errors.Is(err, ErrNotFound) {
		t.Errorf("a missing key was updated: %v", err)
	}
	if err := s.UpdateMap("typed/records", entry(recordKey, "{}"), Missing); err != nil {
		t.Error(err)
	}
	if err := s.UpdateMap("typed/records", entry(recordKey, "{}"), Missing); !errors.Is(err, ErrExists) {
		t.Errorf("an existing key was added: %v", err)
	}
}

// bpftool prints the same values of numbers, structs and arrays.
func TestDumpIsThatOfBpftool(t *testing.T) {
	s := typed(t)
	bpftool, err := exec.LookPath("bpftool")
	if err != nil {
		if _, err = os.Stat("/usr/sbin/bpftool"); err != nil {
			t.Skip("bpftool is not installed")
		}
		bpftool = "/usr/sbin/bpftool"
	}
	if err := s.UpdateMap("typed/records", entry(recordKey, record), Always); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(bpftool, "-j", "map", "dump", "pinned", filepath.Join(s.folder("typed"), "maps", "records")).Output()
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(out), "(unsupported-kind", "null") // of a double, in Debian's
	var theirs []struct {
		Formatted struct{ Key, Value map[string]any }
	}
	if err := json.Unmarshal([]byte(text), &theirs); err != nil || len(theirs) != 1 {
		t.Fatalf("%v: %s", err, text)
	}
	var ours map[string]any
	if err := json.Unmarshal([]byte(record), &ours); err != nil {
		t.Fatal(err)
	}
	same := 0
	their := theirs[0].Formatted.Value
	for name, want := range their {
		switch name {
		case "": // members of an anonymous member, which are the object's own here
			their["word"] = want.(map[string]any)["word"]
			continue
		case "below", "ratio": // raw bits there; not printed there
			continue
		}
		if s, ok := want.(string); ok && strings.HasPrefix(s, "0x") {
			var n uint64
			fmt.Sscanf(s, "0x%x", &n)
			want = float64(n)
		}
		if diff := cmp.Diff(want, ours[name]); diff != "" {
			t.Errorf("%s: -bpftool +ours:\n%s", name, diff)
		}
		same++
	}
	if diff := cmp.Diff(theirs[0].Formatted.Key, map[string]any{"x": -3.0, "y": 9007199254740993.0}); diff != "" || same < 8 {
		t.Errorf("%d members compared; key %s", same, diff)
	}
}

// list and dump do not crawl with ten thousand pins and entries.
func TestListWithTenThousandMaps(t *testing.T) {
	s := typed(t)
	const n = 10000
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "many", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for i := range n {
		c, err := m.Clone()
		if err == nil {
			err = c.Pin(filepath.Join(s.folder("typed"), "maps", fmt.Sprintf("m%d", i)))
			c.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	o, err := s.Object("typed")
	if err != nil || len(o.Maps) < n {
		t.Fatalf("%d maps, %v", len(o.Maps), err)
	}
	t.Logf("%d maps listed in %v", len(o.Maps), time.Since(begin))
	if _, err := s.Unload("typed", false); err != nil {
		t.Error(err)
	}
}

// recordTypes returns the types of map records, from the object.
func recordTypes(t testing.TB) (key, value btf.Type) {
	t.Helper()
	o, err := readObject(objects + "typed.o")
	if err != nil {
		t.Fatal(err)
	}
	m := o.spec.Maps["records"]
	return m.Key, m.Value
}

// What encode takes, decode gives back, and that encodes to the same bytes.
func FuzzMapJSON(f *testing.F) {
	for _, seed := range []string{record, recordKey, `{"name":[97,0,98,0,0,0,0,0]}`, `{"ratio":"NaN"}`, `{"low":1,"high":2}`, `[]`, `{"huge":"-1"}`, `{"bytes":[1,2,3,4]}`} {
		f.Add(seed)
	}
	key, value := recordTypes(f)
	f.Fuzz(func(t *testing.T, text string) {
		v, err := parseJSON([]byte(text))
		if err != nil {
			return
		}
		for _, typ := range []btf.Type{key, value} {
			size, err := btf.Sizeof(typ)
			if err != nil {
				t.Fatal(err)
			}
			b, again := make([]byte, size), make([]byte, size)
			if encode(typ, v, b, "value") != nil {
				continue
			}
			out, err := json.Marshal(decode(typ, b))
			if err != nil {
				t.Fatal(err)
			}
			back, err := parseJSON(out)
			if err == nil {
				err = encode(typ, back, again, "value")
			}
			if err != nil {
				t.Fatalf("%s decodes to %s: %v", text, out, err)
			}
			if third, _ := json.Marshal(decode(typ, again)); string(third) != string(out) {
				t.Errorf("%s\n%s\n%s", text, out, third)
			}
		}
	})
}

// Whatever the bytes are, parseObject returns, and within its bounds.
func FuzzObject(f *testing.F) {
	files, _ := filepath.Glob(objects + "*.o")
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := parseObject(b)
		if err != nil {
			return
		}
		if len(o.about.Programs) == 0 || len(o.about.Programs) > maxParts {
			t.Errorf("%d programs", len(o.about.Programs))
		}
	})
}
