package coraza

import (
	"os"
	"regexp"
	"testing"
)

// The programs that are published have Coraza without access to files: it would write what clients upload to /tmp, on the loop, and would not
// start in a container, which has none. make dist-check runs them in such a root.
func TestProgramsAreBuiltWithoutTemporaryFiles(t *testing.T) {
	text, err := os.ReadFile("../../deploy/dist.mk")
	if err != nil {
		t.Fatal(err)
	}
	builds := regexp.MustCompile(`-tags (waf\S*)`).FindAllSubmatch(text, -1)
	for _, m := range builds {
		if string(m[1]) != "waf,no_fs_access" {
			t.Errorf("a program is built with %s", m[1])
		}
	}
	if len(builds) != 2 {
		t.Errorf("%d builds", len(builds))
	}
}
