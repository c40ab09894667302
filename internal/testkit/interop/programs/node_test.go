package programs

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// nodeTests are those of Node's own tests that are about TCP and UDP, as patterns of files.
var nodeTests = []string{"parallel/test-net-*.js", "parallel/test-dgram-*.js", "sequential/test-net-*.js"}

func nodePrograms() []program {
	node := cmp.Or(os.Getenv("MILLRACE_NODE"), "node")
	return []program{suite{
		program: program{name: "Node tests", version: []string{node, "--version"}, what: "Node's own tests of its version: " + strings.Join(nodeTests, ", ")},
		parts:   nodeTests, part: func(t *testing.T, b *bed, part string) verdicts { return nodePart(t, b, node, part, nil) },
		again: func(t *testing.T, b *bed, part string, names []string) verdicts {
			return nodePart(t, b, node, part, names)
		},
	}.row()}
}

// nodeFlags are the flags that a test asks for.
var nodeFlags = regexp.MustCompile(`(?m)^// Flags: (.*)$`)

// nodePart runs the tests of a pattern, or those with the names.
func nodePart(t *testing.T, b *bed, node, part string, names []string) verdicts {
	t.Helper()
	source := os.Getenv("MILLRACE_NODE_SOURCE")
	needsFile(t, filepath.Join(source, "test", "common", "index.js"), "make interop-shim fetches Node's source")
	files, err := filepath.Glob(filepath.Join(source, "test", part))
	must(t, err)
	v := verdicts{}
	var mu sync.Mutex
	next := make(chan string)
	var work sync.WaitGroup
	workers := 2
	if strings.HasPrefix(part, "sequential/") { // they share a port, and Node's test.py runs them one by one
		workers = 1
	}
	for i := range workers {
		work.Go(func() {
			for file := range next {
				verdict := nodeTest(t, b, node, file, i)
				mu.Lock()
				v[nodeName(file)] = verdict
				mu.Unlock()
			}
		})
	}
	for _, file := range files {
		if names == nil || slices.Contains(names, nodeName(file)) {
			next <- file
		}
	}
	close(next)
	work.Wait()
	return v
}

func nodeName(file string) string {
	return filepath.Base(filepath.Dir(file)) + "/" + strings.TrimSuffix(filepath.Base(file), ".js")
}

// nodeTest runs one file, as Node's test.py does.
func nodeTest(t *testing.T, b *bed, node, file string, worker int) string {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
		return testFailed
	}
	args := []string{node}
	if m := nodeFlags.FindSubmatch(text); m != nil {
		args = append(args, strings.Fields(string(m[1]))...)
	}
	cmd := b.host.command(append(args, file)...)
	cmd.Env = append(os.Environ(), "NODE_TEST_DIR="+b.dir, "TEST_THREAD_ID="+string(rune('0'+worker)))
	cmd.Dir = filepath.Dir(filepath.Dir(filepath.Dir(file)))
	out, code := b.host.begin(t, cmd).finish(t, 40*time.Second)
	switch {
	case code == 0 && strings.Contains(out, "1..0 # Skipped"):
		return testSkipped
	case code == 0:
		return testPassed
	}
	t.Logf("%s: code %d: %s", nodeName(file), code, last(out, 800))
	return testFailed
}
