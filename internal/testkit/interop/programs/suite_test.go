package programs

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// What came of a test of a suite.
const (
	testPassed  = "pass"
	testSkipped = "skip" // by itself
	testFailed  = "fail"
)

// verdicts are those of the tests of a suite, by name.
type verdicts map[string]string

// failures returns the names of the tests that failed.
func (v verdicts) failures() []string {
	var names []string
	for name, verdict := range v {
		if verdict == testFailed {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// count returns how many tests have a verdict.
func (v verdicts) count(verdict string) (n int) {
	for _, have := range v {
		if have == verdict {
			n++
		}
	}
	return n
}

// exception is why tests may fail on the stack although they pass on the kernel.
type exception struct {
	suite  string
	on     []tier // none: all
	tests  string // a regular expression of names
	reason string
}

// suite is the tests that come with a program, in parts.
type suite struct {
	program
	parts []string
	part  func(t *testing.T, b *bed, part string) verdicts
	// again runs single tests of a part once more; nil: the whole part runs again.
	again func(t *testing.T, b *bed, part string, names []string) verdicts
}

// row returns the suite as a program of the page.
func (s suite) row() program {
	p := s.program
	p.run = s.runAll
	return p
}

// runAll runs all parts. A test that fails runs once more: the machine may have been busy.
func (s suite) runAll(t *testing.T, b *bed) string {
	all := verdicts{}
	second := 0
	for _, part := range s.parts {
		start := time.Now()
		got := s.part(t, b, part)
		if failed := got.failures(); len(failed) > 0 {
			var once verdicts
			if s.again != nil {
				once = s.again(t, b, part, failed)
			} else {
				once = s.part(t, b, part)
			}
			for _, name := range failed {
				if once[name] == testPassed {
					got[name] = testPassed
					second++
				}
			}
		}
		t.Logf("%s: %d passed, %d skipped, failed %v, in %v", part, got.count(testPassed), got.count(testSkipped), got.failures(), time.Since(start).Round(time.Second))
		if len(got) == 0 {
			t.Errorf("%s: no test ran", part)
		}
		maps.Copy(all, got)
	}
	b.failed = all.failures()
	note := fmt.Sprintf("%d of %d tests", all.count(testPassed), len(all)-all.count(testSkipped))
	if second > 0 {
		note += fmt.Sprintf(", %d of them the second time", second)
	}
	if n := all.count(testSkipped); n > 0 {
		note += fmt.Sprintf("; %d skip themselves", n)
	}
	if b.tier == onKernel {
		return note
	}
	return note + s.excuse(t, b)
}

// excuse fails the test for each failure that neither the kernel nor the table of exceptions explains.
func (s suite) excuse(t *testing.T, b *bed) (note string) {
	kernel, known := 0, 0
	for _, name := range b.failed {
		switch {
		case b.rows[s.name] != nil && slices.Contains(b.rows[s.name].Cells[onKernel].Failed, name):
			kernel++
		case s.exception(b.tier, name) != nil:
			known++
		default:
			t.Errorf("%s passes on the kernel's stack", name)
		}
	}
	if kernel > 0 {
		note += fmt.Sprintf("; %d fail on the kernel, too", kernel)
	}
	if known > 0 {
		note += fmt.Sprintf("; %d have a reason below", known)
	}
	return note
}

// exception returns why a test may fail, or nil.
func (s suite) exception(on tier, name string) *exception {
	for i := range exceptions {
		if e := &exceptions[i]; e.suite == s.name && (e.on == nil || slices.Contains(e.on, on)) && regexp.MustCompile(e.tests).MatchString(name) {
			return e
		}
	}
	return nil
}

// needsFile skips a test where a file is not there.
func needsFile(t *testing.T, path, how string) {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is not there: %s", path, how)
	}
}

// exceptionTable is the table of the exceptions on the page.
func exceptionTable() string {
	var b strings.Builder
	b.WriteString("\n| suite | tier | tests that may fail | reason |\n|---|---|---|---|\n")
	for _, e := range exceptions {
		on := "all"
		if e.on != nil {
			on = strings.Trim(fmt.Sprintf("%q", e.on), "[]")
		}
		fmt.Fprintf(&b, "| %s | %s | `%s` | %s |\n", e.suite, on, strings.ReplaceAll(e.tests, "|", `\|`), e.reason)
	}
	return b.String()
}
