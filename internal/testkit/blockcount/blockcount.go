// Package blockcount bounds the work of code by counting: it runs a test again with coverage counters, and compares how often
// each block of statements ran for inputs of two sizes. So a loop whose length an input sets is found wherever it is,
// without a counter in the code and without a clock.
package blockcount

import (
	"bufio"
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sizeVariable has the size of the input in the environment of the test that is counted.
const sizeVariable = "BLOCKCOUNT_SIZE"

// Size returns the size of the input that a counted test is to make, usual where nothing counts it.
func Size(usual int) int {
	if n, err := strconv.Atoi(os.Getenv(sizeVariable)); err == nil {
		return n
	}
	return usual
}

// Grows is a block whose count grows faster than the size of the input.
type Grows struct {
	Block        string // file:line.column,line.column
	Small, Large uint64 // how often it ran for the two sizes
}

// slack is how often a block may run in excess of what is in proportion: buffers that double, maps that grow.
const slack = 2000

// Nonlinear runs the test named run of the caller's package with inputs of size small and factor times as large, counting the
// blocks of packages. It returns those that ran more than 1.5 times factor as often, those with the most first.
// Factor should be 4 at least. With -short the test is skipped.
func Nonlinear(t *testing.T, run string, small, factor int, packages ...string) []Grows {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: the package is not built again, with counters")
	}
	binary := build(t, packages)
	few, many := count(t, binary, run, small), count(t, binary, run, small*factor)
	var list []Grows
	for block, n := range many {
		if n > few[block]*uint64(factor)*3/2+slack {
			list = append(list, Grows{block, few[block], n})
		}
	}
	slices.SortFunc(list, func(a, b Grows) int { return cmp.Compare(b.Large, a.Large) })
	return list
}

// build compiles the tests of the caller's package, with counters in packages, once for all sizes.
func build(t *testing.T, packages []string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "counted.test")
	c := exec.Command("go", "test", "-c", "-o", binary, "-covermode=count", "-coverpkg="+strings.Join(packages, ","), ".")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", c, err, out)
	}
	return binary
}

// count runs a test once and returns how often each block ran.
func count(t *testing.T, binary, run string, size int) map[string]uint64 {
	t.Helper()
	profile := filepath.Join(t.TempDir(), "profile")
	c := exec.Command(binary, "-test.run=^"+run+"$", "-test.coverprofile="+profile)
	c.Env = append(os.Environ(), sizeVariable+"="+strconv.Itoa(size))
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", c, err, out)
	}
	f, err := os.Open(profile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	counts := map[string]uint64{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// file:line.column,line.column statements count
		field := strings.Fields(lines.Text())
		if len(field) != 3 {
			continue
		}
		n, err := strconv.ParseUint(field[2], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		counts[field[0]] += n
	}
	if len(counts) == 0 {
		t.Fatalf("%v has counted nothing", c)
	}
	return counts
}
