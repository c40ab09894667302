package cuda

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace/millrace/gpukern/cuda/ptx"
)

func TestChooseTakesTheLatestFormThatRuns(t *testing.T) {
	f80, f90 := form{name: "x", target: "sm_80", needs: 11000}, form{name: "x", target: "sm_90", needs: 11080}
	for _, c := range []struct {
		capability, version int
		want, why           string
	}{
		{80, 12040, "sm_80", "sm_90 needs compute capability 9.0, the device has 8.0"},
		{89, 12040, "sm_80", "sm_90 needs compute capability 9.0, the device has 8.9"},
		{90, 12040, "sm_90", ""},
		{100, 13000, "sm_90", ""},
		{90, 11080, "sm_90", ""},
		{90, 11070, "sm_80", "sm_90 needs a driver for CUDA 11.8, this one is for 11.7"},
	} {
		both := []form{f80, f90}
		latestFirst(both)
		f, why, err := choose(both, c.capability, c.version)
		if err != nil || f.target != c.want || why != c.why {
			t.Errorf("capability %d, driver %d: %s, %q, %v", c.capability, c.version, f.target, why, err)
		}
	}
	_, _, err := choose([]form{f90}, 80, 11000)
	if !errors.Is(err, ErrTooOld) || !strings.Contains(err.Error(), "module x") {
		t.Errorf("no form: %v", err)
	}
}

func TestFormOf(t *testing.T) {
	f, err := formOf("ptx/x.sm_90.ptx", []byte("//\n.version 7.8\n.target sm_90\n"))
	if err != nil || f.name != "x" || f.target != "sm_90" || f.needs != 11080 || f.ptx[len(f.ptx)-1] != 0 {
		t.Errorf("%+v, %v", f, err)
	}
	f, err = formOf("y.ptx", []byte(".version 7.0\n"))
	if err != nil || f.name != "y" || f.target != "sm_80" || f.needs != 11000 {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := formOf("z.ptx", []byte("nothing")); err == nil || !strings.Contains(err.Error(), "z.ptx") {
		t.Errorf("%v", err)
	}
}

func TestCUDAForPTX(t *testing.T) { // PTX ISA, Release History
	for ptx, want := range map[[2]int]int{
		{7, 0}: 11000, {7, 1}: 11010, {7, 8}: 11080, {8, 0}: 12000, {8, 5}: 12050, {8, 6}: 12070, {8, 7}: 12080, {8, 8}: 12090, {9, 0}: 13000,
	} {
		if got := cudaFor(ptx[0], ptx[1]); got != want {
			t.Errorf("PTX %v came with CUDA %d, want %d", ptx, got, want)
		}
	}
}

// committed returns the PTX files by name.
func committed(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("ptx/*.ptx")
	tests, err2 := filepath.Glob("testdata/ptx/*.ptx")
	if err := errors.Join(err, err2); err != nil || len(files) == 0 || len(tests) == 0 {
		t.Fatalf("%d files, %d of tests, %v", len(files), len(tests), err)
	}
	files = append(files, tests...)
	all := map[string][]byte{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all[f] = b
	}
	return all
}

// TestEveryKernelIsFound counts what the sources say: every GK_KERNEL is an entry of its module, and there
// are no others.
func TestEveryKernelIsFound(t *testing.T) {
	source := regexp.MustCompile(`(?m)^GK_KERNEL\w*\((\w+),`)
	for file, ptx := range committed(t) {
		name := strings.TrimSuffix(filepath.Base(file), ".ptx")
		cu, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(file)), name+".cu"))
		if err != nil {
			t.Errorf("%s has no source: %v", file, err)
			continue
		}
		var want, got []string
		for _, m := range source.FindAllSubmatch(cu, -1) {
			want = append(want, string(m[1]))
		}
		for _, e := range entries(ptx) {
			got = append(got, e.name)
			if e.bytes < 1 || e.bytes > paramMost {
				t.Errorf("%s takes %d bytes", e.name, e.bytes)
			}
		}
		if n := bytes.Count(ptx, []byte(".entry ")); n != len(got) {
			t.Errorf("%s: %d entries, %d are read", file, n, len(got))
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s has %v, its source %v", file, got, want)
		}
	}
}

// TestEntriesAndZero reads PTX as the driver gets it.
func TestEntriesAndZero(t *testing.T) {
	got := entries([]byte(".visible .entry a(\n\t.param .align 8 .b8 a_param_0[24]\n)\n.maxntid 256, 1, 1\n{\n}\n\x00"))
	if len(got) != 1 || got[0] != (entry{"a", 24}) {
		t.Errorf("%+v", got)
	}
}

// TestNothingGoesByTheNonCoherentCache: a persistent kernel would never see what was read so once change
// under it.
func TestNothingGoesByTheNonCoherentCache(t *testing.T) {
	for file, ptx := range committed(t) {
		for n, line := range strings.Split(string(ptx), "\n") {
			if strings.Contains(line, "ld.global.nc") || strings.Contains(line, "ldu.") || strings.Contains(line, "tex.") {
				t.Errorf("%s:%d: %s", file, n+1, strings.TrimSpace(line))
			}
		}
	}
}

func TestModulesAreToldWithTheirForms(t *testing.T) {
	devices(t, func(t *testing.T, d *Device) {
		all, err := forms(ptx.Files)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Info().Modules) != len(all) {
			t.Errorf("%d modules of %d", len(d.Info().Modules), len(all))
		}
		for _, m := range d.Info().Modules {
			if m.Name == "" || m.Form == "" || m.Took <= 0 {
				t.Errorf("%+v", m)
			}
		}
		k := must(d.Kernel("gk_probe_echo"))(t)
		if k.Threads != 32 || k.Form != "probe.sm_80" || k.Registers < 1 {
			t.Errorf("%+v", k)
		}
	})
}

func TestTranslatorsLogIsInTheError(t *testing.T) {
	devices(t, func(t *testing.T, d *Device) {
		err := d.do(func() error { return d.loadForm(form{name: "broken", ptx: []byte("not PTX at all\x00")}) })
		var e *Error
		if !errors.As(err, &e) || e.Log == "" || !strings.Contains(err.Error(), "load module broken") {
			t.Errorf("%v", err)
		}
		if d.Lost() != nil {
			t.Errorf("the device is lost: %v", d.Lost())
		}
	})
}
