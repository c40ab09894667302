package rdma

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"strings"
	"testing"
)

// TestLibrariesHaveTheirVersions compares the names and versions of the built libraries with those that programs ask for: all of their
// maps, and the private ones of each release.
func TestLibrariesHaveTheirVersions(t *testing.T) {
	_, files, err := Libraries()
	if errors.Is(err, ErrNoLibrary) {
		t.Skipf("%v (`make preload` builds it)", err)
	}
	for lib, source := range map[string]string{"libibverbs.so.1": "verbs.map", "librdmacm.so.1": "../rdmacm/rdmacm.map", "libmlx5.so.1": "mlx5.map", "libefa.so.1": "efa.map"} {
		f, err := elf.NewFile(bytes.NewReader(files[lib]))
		if err != nil {
			t.Fatal(err)
		}
		symbols, err := f.DynamicSymbols()
		if err != nil {
			t.Fatal(err)
		}
		have := map[string]bool{}
		for _, s := range symbols {
			have[s.Name+"@"+s.Version] = s.Section != elf.SHN_UNDEF
		}
		text, err := os.ReadFile("verbs/" + source)
		if err != nil {
			t.Fatal(err)
		}
		version := ""
		for line := range strings.Lines(string(text)) {
			switch line = strings.TrimSpace(line); {
			case strings.HasSuffix(line, "{"):
				version = strings.Fields(line)[0]
			case strings.HasSuffix(line, ";") && line != "*;" && !strings.HasPrefix(line, "}"):
				if name := strings.TrimSuffix(line, ";"); !have[name+"@"+version] {
					t.Errorf("%s lacks %s@%s", lib, name, version)
				}
			}
		}
	}
	f, _ := elf.NewFile(bytes.NewReader(files["libibverbs.so"]))
	symbols, _ := f.DynamicSymbols()
	private := map[string]bool{}
	for _, s := range symbols {
		if s.Name == "ibv_query_gid_type" {
			private[s.Version] = true
		}
	}
	for _, n := range []string{"34", "57", "59", "64", "65"} {
		if !private["IBVERBS_PRIVATE_"+n] {
			t.Errorf("libibverbs lacks the private version of release %s: %v", n, private)
		}
	}
	libs, err := f.ImportedLibraries()
	if err != nil || len(libs) != 1 || libs[0] != "libc.so.6" {
		t.Errorf("libibverbs needs %v, want libc alone (%v)", libs, err)
	}
}
