package dpdk

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/pmd"
)

// machine is a file system with some files.
func machine(paths ...string) fstest.MapFS {
	m := fstest.MapFS{}
	for _, p := range paths {
		m[p] = &fstest.MapFile{}
	}
	return m
}

const (
	eal23 = "usr/lib/x86_64-linux-gnu/librte_eal.so.23.0"
	eal24 = "usr/local/lib/librte_eal.so.24.1"
)

func TestFindPrefersTheShimOfAnInstalledDPDK(t *testing.T) {
	for _, c := range []struct {
		what, named, program string
		files                []string
		installed            []int
		shims                []string
		usable               bool
	}{
		{what: "nothing"},
		{what: "DPDK without a shim", files: []string{eal23}, installed: []int{23}},
		{what: "a shim without DPDK", files: []string{"usr/lib/millrace/libmillrace-dpdk-23.so"}, shims: []string{"/usr/lib/millrace/libmillrace-dpdk-23.so"}},
		{
			what: "beside the program", program: "/srv/bin/millrace", files: []string{eal23, "srv/bin/libmillrace-dpdk-23.so"},
			installed: []int{23}, shims: []string{"/srv/bin/libmillrace-dpdk-23.so"}, usable: true,
		},
		{
			what: "the newest that fits first", files: []string{eal23, eal24, "usr/lib/millrace/libmillrace-dpdk-23.so", "usr/lib/millrace/libmillrace-dpdk-24.so", "usr/lib/millrace/libmillrace-dpdk-25.so"},
			installed: []int{24, 23}, usable: true,
			shims: []string{"/usr/lib/millrace/libmillrace-dpdk-24.so", "/usr/lib/millrace/libmillrace-dpdk-23.so", "/usr/lib/millrace/libmillrace-dpdk-25.so"},
		},
		{
			what: "a folder that is named is the only one", named: "/opt/shims", program: "/srv/bin/millrace",
			files:     []string{eal23, "srv/bin/libmillrace-dpdk-23.so", "opt/shims/libmillrace-dpdk-24.so", "opt/shims/readme", "opt/shims/libmillrace-dpdk-x.so"},
			installed: []int{23}, shims: []string{"/opt/shims/libmillrace-dpdk-24.so"},
		},
		{
			what: "a file that is named", named: "/opt/shims/libmillrace-dpdk-23.so", files: []string{eal23, "opt/shims/libmillrace-dpdk-23.so"},
			installed: []int{23}, shims: []string{"/opt/shims/libmillrace-dpdk-23.so"}, usable: true,
		},
		{what: "a file that is named and is not there", named: "/opt/libmillrace-dpdk-23.so", files: []string{eal23}, installed: []int{23}},
	} {
		f := Find(machine(c.files...), c.named, c.program)
		var shims []string
		for _, s := range f.Shims {
			shims = append(shims, s.Path)
		}
		if !slices.Equal(f.Installed, c.installed) || !slices.Equal(shims, c.shims) || f.Usable() != c.usable {
			t.Errorf("%s: installed %v, shims %v, usable %v", c.what, f.Installed, shims, f.Usable())
		}
	}
}

// TestUnavailableNamesBothVersions opens files that are no shims.
func TestUnavailableNamesBothVersions(t *testing.T) {
	for _, c := range []struct {
		what         string
		found        Found
		want         error
		text, remedy string
	}{
		{"nothing is installed", Found{Searched: []string{"/usr/lib/millrace"}}, ErrNoShim, "installed is none, built are shims for none, looked for in /usr/lib/millrace", "`apt-get install dpdk libdpdk-dev`, then `make dpdk`"},
		{"no shim", Found{Installed: []int{23}}, ErrNoShim, "installed is DPDK 22.11 (ABI 23), built are shims for none", "`make dpdk`"},
		{
			"a shim of another DPDK",
			Found{Installed: []int{23}, Shims: []ShimFile{{"/nowhere/libmillrace-dpdk-25.so", 25}}},
			ErrMismatch,
			"installed is DPDK 22.11 (ABI 23), built are shims for DPDK 24.11 (ABI 25): /nowhere/libmillrace-dpdk-25.so: cannot open", "`make dpdk`",
		},
		{"a library that is no shim", Found{Installed: []int{23}, Shims: []ShimFile{{"libc.so.6", 23}}}, ErrMismatch, "libc.so.6 is no shim", "`make dpdk`"},
	} {
		_, err := open(c.found)
		var e *UnavailableError
		if !errors.As(err, &e) || !errors.Is(err, c.want) || !errors.Is(err, pmd.ErrNotSupported) {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		if !strings.Contains(err.Error(), c.text) || !strings.Contains(e.Remedy(), c.remedy) {
			t.Errorf("%s: %v (%s)", c.what, err, e.Remedy())
		}
		if wrapped := unavailable("net_null0", err); !strings.Contains(wrapped.Error(), "net_null0") || !strings.Contains(wrapped.Error(), c.remedy) {
			t.Errorf("%s: %v", c.what, wrapped)
		}
	}
}

// TestArgumentsOfTheEnvironment checks what EAL is started with: never a device that was not named, never shared files.
func TestArgumentsOfTheEnvironment(t *testing.T) {
	for _, c := range []struct {
		huge      bool
		extra     string
		has, lack []string
	}{
		{false, "", []string{"--no-huge", "--no-shconf", "-m 64", "-l 3", "--file-prefix=millrace", "--no-telemetry"}, []string{"--in-memory"}},
		{true, "", []string{"--in-memory"}, []string{"--no-huge", "--no-shconf", "-m 64"}},
		{true, "--no-huge -m 256", []string{"--no-huge", "--no-shconf", "-m 256"}, []string{"--in-memory", "-m 64"}},
		{false, "--log-level=debug", []string{"--log-level=debug"}, nil},
	} {
		got := " " + strings.Join(ealArguments(c.huge, c.extra, 3), " ") + " "
		for _, w := range c.has {
			if !strings.Contains(got, " "+w) {
				t.Errorf("huge %v, %q: %s lacks %s", c.huge, c.extra, got, w)
			}
		}
		for _, w := range c.lack {
			if strings.Contains(got, " "+w+" ") {
				t.Errorf("huge %v, %q: %s has %s", c.huge, c.extra, got, w)
			}
		}
		if !strings.Contains(got, "-a 0000:00:00.0 ") && !strings.Contains(got, "--no-pci ") {
			t.Errorf("EAL would take every device of the bus: %s", got)
		}
		if strings.Count(got, "--no-huge") > 1 {
			t.Errorf("twice: %s", got)
		}
	}
}

// TestSymmetricKey computes Toeplitz hashes of both directions of flows.
func TestSymmetricKey(t *testing.T) {
	key := symmetricKey(40)
	hash := func(in []byte) (sum uint32) {
		for i := range len(in) * 8 {
			if in[i/8]>>(7-i%8)&1 == 0 {
				continue
			}
			for b := range 32 {
				at := i + b
				sum ^= uint32(key[at/8]>>(7-at%8)&1) << (31 - b)
			}
		}
		return sum
	}
	a, b := []byte{198, 18, 0, 7}, []byte{192, 0, 2, 200}
	p, q := []byte{0x1f, 0x90}, []byte{0xc3, 0x51}
	there, back := hash(slices.Concat(a, b, p, q)), hash(slices.Concat(b, a, q, p))
	if there != back || there == 0 {
		t.Errorf("%x there, %x back", there, back)
	}
	if other := hash(slices.Concat(a, b, p, []byte{0xc3, 0x52})); other == there {
		t.Errorf("another port has the hash %x too", other)
	}
}

func TestErrorsOfDPDKAreExplained(t *testing.T) {
	for _, c := range []struct {
		op, log string
		result  int64
		want    error
	}{
		{"probe", "", -17, pmd.ErrBusy},
		{"start", "", -16, pmd.ErrBusy},
		{"start", "Failed to create xsk socket: Device or resource busy", -22, pmd.ErrBusy},
		{"probe", "", -1, ErrNoDevice},
		{"probe", "EAL: vfio: Permission denied", -1, pmd.ErrPermission},
		{"probe", "", -13, pmd.ErrPermission},
		{"probe", "EAL: Driver cannot attach the device (net_null0)", -1, ErrArguments},
	} {
		if err := explain(c.op, "dev", 0, errno(c.result), c.log); !errors.Is(err, c.want) {
			t.Errorf("%s, %d, %q: %v", c.op, c.result, c.log, err)
		}
	}
}

// TestEnvironmentStartsOnce starts EAL a second time, as a program does that uses DPDK by other means as well.
func TestEnvironmentStartsOnce(t *testing.T) {
	if os.Getenv("MILLRACE_DPDK_TEST") == "" {
		t.Skip("DPDK is not installed by `make deps`: `make dpdk-test` runs this")
	}
	s, err := load()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.startEAL(false); err != nil {
			t.Fatal(err)
		}
	}
	args := cString("another\n--no-huge")
	err = ealError(errno(s.call("mrd_eal", uintptr(unsafe.Pointer(args)))), []string{"another", "--no-huge"}, s.log())
	if !errors.Is(err, ErrEnvironment) || !errors.Is(err, unix.EALREADY) || !strings.Contains(err.Error(), "another part of this process") {
		t.Errorf("%v", err)
	}
	if err := ealError(unix.EINVAL, []string{"millrace", "-l", "0"}, "EAL: invalid core list syntax\n"); !errors.Is(err, ErrEnvironment) || !strings.Contains(err.Error(), `"-l 0": invalid argument: EAL: invalid core list`) {
		t.Errorf("%v", err)
	}
}
